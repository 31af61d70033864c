//! Arrays: one volume out of several, wherever those are.
//!
//! An array's members are volumes of any kind and any server. Each carries a label with the whole table of the array ([`Label`]), so the
//! members find each other again, and who finds some of them knows what the others are. In a group of copies all members hold the same:
//! what is written goes to all of them, and is acknowledged when all have it that are in; what is read comes from one. Groups stand one
//! behind the other, or are striped ([`Layout`]).
//!
//! **A member that fails** is put out: before the write is acknowledged that it does not have, the labels of all others say so. At least
//! half of those that were in must be left, and to assemble an array takes more than half of those that are in by the newest label found:
//! so two parts that cannot see each other are never both in use, and members with older content are never taken for the array.
//!
//! **What may differ** is known: before the first write to a region, a bit that is stable on all members says so (`intent.rs`). After a
//! loss of power, and when a member is back, only those regions are copied.
//!
//! No I/O and no clock here: stores do that, and whoever drives what [`Array::resync`] begins.
#![forbid(unsafe_code)]

mod array;
mod assembly;
mod drive;
mod error;
mod former;
mod group;
mod growing;
mod history;
mod intent;
mod label;
mod layout;
mod locks;
mod making;
mod resync;
mod returning;
mod state;
mod table_change;
mod unflushed;
mod view;

pub use array::{Array, MemberStatus};
pub use assembly::{Found, assemble, find};
pub use drive::{Begin, Candidate, Drive};
pub use error::ArrayError;
pub use former::Former;
pub use growing::grow;
pub use label::encoding::Illegible;
pub use label::{Label, MEMBERS_MAX, MemberRecord, NAME_MAX_BYTES, PLACE_MAX_BYTES, Run, Standing, Table};
pub use layout::{Arrangement, Layout};
pub use making::{Plan, create};
pub use view::View;
