//! A sector that cannot be read keeps no more from being copied than its region.

use std::sync::Arc;

use sanwire_array::{Arrangement, Array, Begin, Candidate, Plan, assemble, create};
use sanwire_store::layer::{ErrorLayer, Over};
use sanwire_store::{Completion, Outcome, RamStore, Request, Started, Store};

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

/// So many volumes, and an array of them.
fn made(count: usize, copies: usize) -> Vec<Candidate> {
    let candidate = |number: usize| Candidate { place: number.to_string(), store: ram() };
    let members: Vec<_> = (0..count).map(candidate).collect();
    let plan = Plan { name: "a".to_owned(), arrangement: Arrangement::Concat, copies, force: false };
    let mut next = 0_u128;
    let fresh = || {
        next += 1;
        next.to_be_bytes()
    };
    create(&plan, &members, fresh, &mut drive).unwrap();
    members
}

/// From now on a sector in the third MiB of data cannot be read there.
fn hurt(member: &mut Candidate) {
    let layer = ErrorLayer::new(vec!["read#6144..6145".parse().unwrap()], 0);
    member.store = Arc::new(Over::new(layer, Arc::clone(&member.store)));
}

fn behind(array: &Array) -> Vec<u64> {
    array.members().into_iter().map(|member| member.behind_bytes).collect()
}

#[test]
fn all_but_the_region_of_an_unreadable_sector_is_copied_in_every_group() {
    // Two mirrors, one behind the other. In the first one, the sector cannot be read where it is copied from.
    let mut members = made(4, 2);
    hurt(&mut members[0]);
    let array = assemble("a", &members, false, 1, &mut drive).unwrap();
    resync(&array, 100);
    assert_eq!(behind(&array), [0, 1 << 20, 0, 0]);
}

#[test]
fn what_one_copy_cannot_show_is_copied_from_another_one() {
    let mut members = made(3, 3);
    let ask = |array: &Array, request| {
        let array = array.clone();
        drive(Box::new(move |queue| array.start(request, queue))).unwrap();
    };
    let first = assemble("a", &members, false, 1, &mut drive).unwrap();
    resync(&first, 100);
    ask(&first, Request::Flush);
    sanwire_store::drive(|queue| first.tidy(queue).unwrap(), |op| panic!("{op:?} is for the kernel")).unwrap();
    hurt(&mut members[0]);
    let array = assemble("a", &members[..2], false, 2, &mut drive).unwrap();
    ask(&array, Request::Write { offset_bytes: 2 << 20, data: vec![7; 512].into() });
    array.rejoin(2, &members[2], &mut drive).unwrap();
    assert_eq!(behind(&array), [0, 0, 1 << 20]);
    resync(&array, 100);
    assert_eq!(behind(&array), [0; 3]);
}
