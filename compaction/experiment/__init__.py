"""Runs of made-up load on a live broker: what calibration and the study are made of."""
