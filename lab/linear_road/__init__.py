"""Linear Road: traffic to drive the example with, the right answers, and the study of both."""
