"""What the project is tested and measured with: studies, their sites and their oracles. Not part of the wheel."""
