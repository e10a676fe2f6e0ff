"""Every verb on random logs, straight, killed and repartitioned, against plain Python over the whole log."""
