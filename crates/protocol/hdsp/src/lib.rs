//! HDSP, the High Performance Disk Storage Protocol: commands of ATA, SATA and SCSI disks straight on Ethernet.
//!
//! The wire formats, without I/O. `docs/protocols/hdsp.md` is the specification.
#![forbid(unsafe_code)]

pub mod wire;

/// The EtherType of HDSP, as the paper gives it. It is not registered.
pub const ETHERTYPE: u16 = 0x6666;
