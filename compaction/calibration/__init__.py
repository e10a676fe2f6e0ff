"""Short runs of made-up load on a scratch topic, and the costs of this broker fitted to them."""
