"""How event time moves at a task: watermarks, idle inputs, what is late."""
