//! Tensors and collective calls that run eagerly or are recorded into one graph.
