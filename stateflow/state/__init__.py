"""Typed state over stores of bytes: values, lists, maps, their key layouts and their time to live."""
