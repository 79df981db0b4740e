//! The graph in which collectives are nodes: types, groups, ops, builder, validator, text, passes and cost model.
