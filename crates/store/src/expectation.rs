//! Which volume a store is to hold: what is known of it from before.

/// The extended attribute of a file that holds a volume: a line for each name under which it was served, since under another name
/// the same file is another volume. A line is the uuid in hexadecimal, a space, the name.
pub const VOLUME_MARK: &str = "user.sanwire.volume";

/// What is known of a volume that was served: to be kept by who serves it, and told when it is opened again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Its identity.
    pub uuid: [u8; 16],
    /// Whether its file carries the identity; a file without it is another one then.
    pub is_marked: bool,
    /// The length it had; it never gets shorter.
    pub length_bytes: u64,
    /// The name of its block device that stays with the hardware, where it has one.
    pub device: Option<String>,
}

/// What is done with a file or device that is not what is known of its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Acceptance {
    /// It is refused.
    #[default]
    Known,
    /// Another one is taken, as the same volume: its owner says that it is. Nothing, or less than there was, is refused.
    Adopted,
    /// Whatever is there is taken, or made, as another volume than before.
    Renewed,
}

/// Which volume a file is to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation<'a> {
    /// The volume's name.
    pub name: &'a str,
    /// What is known of it; `None` when it was never served before.
    pub known: Option<Known>,
    /// What is known of the store below its layers, from when the volume had none ([`crate::VolumeSpec::below_layers`]).
    pub known_below: Option<Known>,
    /// Whether what is known from now on will be kept.
    pub is_kept: bool,
    /// Whether something else is taken.
    pub acceptance: Acceptance,
    /// The identity of a volume that is made, or renewed: one that no volume has had.
    pub fresh: [u8; 16],
    /// The identity of a volume of which neither its file nor anybody else knows one.
    pub fallback: [u8; 16],
}
