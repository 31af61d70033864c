//! What the ends of a link take.

/// Packets that the ends of a link take at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Capacity {
    pub(crate) ours: u32,
    pub(crate) theirs: u32,
}

/// The size of packets that is used at first, and the largest that may ever be, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) packet_base_bytes: usize,
    pub(crate) packet_limit_bytes: usize,
}
