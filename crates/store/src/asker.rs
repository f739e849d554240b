//! Who asks for a long read.

/// Who asks for a long read. Each kind has places of its own: an operator who asks for lists without end keeps neither a merchant's list
/// waiting nor a callback that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The dispatcher and whatever else the server does by itself.
    Server,
    /// A merchant's program.
    Merchant,
    /// An operator, or what is done now and then in their name.
    Operator,
}

impl Asker {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = 3;
}
