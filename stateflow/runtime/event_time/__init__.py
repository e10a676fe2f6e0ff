"""How event time moves at a task: watermarks, idle inputs, what is late, when a worker has drained its input."""
