"""What an application's topics hold, on its control topic."""
