//! Worlds without a wire: initiators give commands to the engines of several shards, which serve the same disks, end those of each
//! other, lose their nexuses and go to others. The disks are slow, hang, are full or gone for a while.
//!
//! Nothing is left to chance in what is judged: the [`oracle`] sees each block that a disk writes, knows by its content which command that
//! was, and whether that command may still write there.

mod deeds;
pub mod disks;
mod farewell;
pub mod initiator;
pub mod oracle;
pub mod plan;
pub mod shard;
pub mod world;
