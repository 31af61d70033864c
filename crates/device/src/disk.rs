//! Block devices (SBC-4): the commands that only a disk has.

pub(crate) mod compare_and_write;
pub(crate) mod copy;
pub(crate) mod growth;
pub(crate) mod lba_status;
pub(crate) mod provisioning_threshold;
pub(crate) mod sanitize;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod write_same;
