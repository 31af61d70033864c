//! A sector that cannot be read keeps no more from being copied than its region.

use std::sync::Arc;

use sanwire_array::{Arrangement, Array, Begin, Candidate, Plan, assemble, create};
use sanwire_store::layer::{ErrorLayer, Over};
use sanwire_store::{Completion, Outcome, RamStore, Started, Store};

fn drive(begin: Begin) -> Completion {
    sanwire_store::drive(begin, |op| panic!("{op:?} is for the kernel"))
}

fn ram() -> Arc<dyn Store> {
    Arc::new(RamStore::new(8 << 20, 512))
}

fn resync(array: &Array, steps: usize) {
    for _ in 0..steps {
        // What fails is tried again.
        let _ = sanwire_store::drive(
            |completions| array.resync(completions).unwrap_or_else(|| Started::Done(Ok(Outcome::Done))),
            |op| panic!("{op:?} is for the kernel"),
        );
    }
}

#[test]
fn all_but_the_region_of_an_unreadable_sector_is_copied_in_every_group() {
    // Two mirrors, one behind the other. In the first one, a sector of the third MiB of data cannot be read where it is copied from.
    let hurt = ErrorLayer::new(vec!["read#6144..6145".parse().unwrap()], 0);
    let stores: [Arc<dyn Store>; 4] = [Arc::new(Over::new(hurt, ram())), ram(), ram(), ram()];
    let candidate =
        |(number, store): (usize, &Arc<dyn Store>)| Candidate { place: number.to_string(), store: Arc::clone(store) };
    let members: Vec<_> = stores.iter().enumerate().map(candidate).collect();
    let plan = Plan { name: "a".to_owned(), arrangement: Arrangement::Concat, copies: 2, force: false };
    let mut next = 0_u128;
    let fresh = || {
        next += 1;
        next.to_be_bytes()
    };
    create(&plan, &members, fresh, &mut drive).unwrap();
    let array = assemble("a", &members, false, 1, &mut drive).unwrap();
    resync(&array, 100);
    let behind: Vec<_> = array.members().into_iter().map(|member| member.behind_bytes).collect();
    assert_eq!(behind, [0, 1 << 20, 0, 0]);
}
