"""A whole application under drawn faults and operations, on real brokers: is every result there exactly once?"""
