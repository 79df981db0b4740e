//! `barrier(group)`: no rank goes on before every rank of the group has arrived.
//!
//! It reads and writes no tensor, and it is never removed for having no users.

use crate::{Context, ConvertError};
use hcom_ir::{Attrs, GroupId, Op};

const CALL: &str = "barrier";

/// Adds a barrier over `group`.
///
/// # Errors
/// [`ConvertError::NotInGroup`].
pub fn convert(context: &mut Context<'_>, group: GroupId) -> Result<(), ConvertError> {
    context.member_of(CALL, group)?;
    context
        .builder
        .push(Op::Barrier, &[], Attrs::new().with("group", group))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Call;
    use crate::context::tests::check;
    use expect_test::expect;

    #[test]
    fn one_node_without_operands() {
        check(
            [],
            &[0, 1],
            0,
            &Call::Barrier,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f() {
              barrier group = @g
            }
        "#]],
        );
    }

    #[test]
    fn an_outsider_is_refused() {
        check(
            [],
            &[1, 3],
            0,
            &Call::Barrier,
            expect!["barrier: rank 0 is not in group g (ranks [1, 3])"],
        );
    }
}
