//! Derived virtual devices (DVDs): volumes that are parts of others, for those whom their owners name.
//!
//! What a derived volume may do is enforced by the device; here is what is written of it, and what the server does besides.

mod check;
mod error;
mod kind;
mod lineage;
mod operations;
mod owners;
mod principal;
mod region;
mod until;

pub use self::check::check_derived;
pub(crate) use self::check::{inherit_levels, owners};
pub(crate) use self::error::DEPTH_MAX;
pub use self::error::DerivedError;
pub(crate) use self::kind::{DerivedSpec, with_until};
pub use self::kind::{chap_users_of, program_of, register};
pub(crate) use self::lineage::{Children, Lineage, opening_order};
pub(crate) use self::operations::words;
pub(crate) use self::owners::Owners;
pub(crate) use self::principal::{PrincipalRule, PrincipalRules};
pub(crate) use self::region::Region;
pub(crate) use self::until::{Until, unix_millis};
