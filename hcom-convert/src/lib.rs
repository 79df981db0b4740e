//! Converts a collective call into graph nodes, one module per collective.
