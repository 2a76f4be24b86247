"""From one form of a model to another: containers and releases here, other formats beside."""
