//! What is copied and compared between the members of a mirror.

#[path = "../common/mod.rs"]
mod common;

mod changed;
mod compared;

use std::sync::Arc;

use sanwire_array::{Arrangement, Array, Candidate, Plan, assemble, create};
use sanwire_store::Store;

use common::{drive, settle};

/// A new mirror `a` of these, with its members, whose copies are the same and known to be.
fn mirror_of<S: Store + 'static>(stores: &[Arc<S>]) -> (Vec<Candidate>, Array) {
    let candidate = |(number, store): (usize, &Arc<S>)| {
        let store = Arc::clone(store) as Arc<dyn Store>;
        Candidate { place: format!("disk{number}"), store }
    };
    let members: Vec<_> = stores.iter().enumerate().map(candidate).collect();
    let copies = stores.len();
    let plan = Plan { name: "a".to_owned(), arrangement: Arrangement::Concat, copies, force: false };
    let mut next = 100_u128;
    let fresh = || {
        next += 1;
        next.to_be_bytes()
    };
    create(&plan, &members, fresh, &mut drive).unwrap();
    let array = assemble("a", &members, false, 1, &mut drive).unwrap();
    settle(&array);
    (members, array)
}
