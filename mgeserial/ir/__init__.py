"""The graph: models, nodes, values, tensors and what is known of them."""
