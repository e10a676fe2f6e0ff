"""Windows: how they are declared, and the step of each kind."""
