"""How far an application is, seen from outside: its lag, what holds event time back, whether it has drained."""
