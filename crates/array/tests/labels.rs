//! Labels that other versions have written: they are read, or left as they are.

mod common;

use std::sync::Arc;

use sanwire_array::{Arrangement, ArrayError, Candidate, Label, Plan, View, assemble, create, grow};
use sanwire_store::{Outcome, RamStore, Request, Store};

use common::{drive, kernel, settle};

const MIB: u64 = 1 << 20;
const MEMBER_BYTES: u64 = 4 * MIB;
/// Where the copies of a label stand.
const COPIES: [u64; 3] = [0, 16 << 10, MEMBER_BYTES - (16 << 10)];

fn stores(count: usize) -> Vec<Candidate> {
    let candidate = |number| {
        let store = Arc::new(RamStore::new(MEMBER_BYTES, 512)) as Arc<dyn Store>;
        Candidate { place: format!("ram:{number}"), store }
    };
    (0..count).map(candidate).collect()
}

fn ids() -> impl FnMut() -> [u8; 16] {
    let mut next = 100_u128;
    move || {
        next += 1;
        next.to_be_bytes()
    }
}

fn plan(copies: usize, force: bool) -> Plan {
    Plan { name: "a".to_owned(), arrangement: Arrangement::Concat, copies, force }
}

/// Has the label of a member say something else.
fn rewrite(member: &Candidate, change: impl Fn(&mut Label)) {
    let mut label = member.label(&mut drive).unwrap().unwrap();
    change(&mut label);
    for offset_bytes in COPIES {
        let request = Request::Write { offset_bytes, data: label.encode().into() };
        sanwire_store::run(&*member.store, request, kernel).unwrap();
    }
}

fn content(member: &Candidate) -> Vec<u8> {
    let buffer = vec![9; MEMBER_BYTES as usize].into();
    match sanwire_store::run(&*member.store, Request::Read { offset_bytes: 0, buffer }, kernel) {
        Ok(Outcome::Read(frame)) => frame.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_whose_place_is_longer_than_places_may_be_now_is_found_and_used() {
    let members = stores(2);
    create(&plan(2, false), &members, ids(), &mut drive).unwrap();
    let place = "p".repeat(3000);
    members.iter().for_each(|member| rewrite(member, |label| label.table.members[1].place.clone_from(&place)));
    for run in 1..3 {
        let array = assemble("a", &members, false, run, &mut drive).unwrap();
        settle(&array);
        let request = Request::Write { offset_bytes: 4096, data: vec![run as u8; 4096].into() };
        sanwire_store::run(&array, request, kernel).unwrap();
        assert_eq!((array.table().run, array.members()[1].place.as_str()), (run, place.as_str()));
    }
    for member in &members {
        let label = member.label(&mut drive).unwrap().unwrap();
        assert_eq!((label.table.run, label.table.members[1].place.as_str()), (2, place.as_str()));
    }
}

#[test]
fn no_store_is_added_for_which_long_places_leave_no_room() {
    let members = stores(1);
    create(&plan(1, false), &members, ids(), &mut drive).unwrap();
    rewrite(&members[0], |label| label.table.members[0].place = "p".repeat(31 * 440 - 40));
    let other = |place: String| [Candidate { place, ..stores(1).remove(0) }];
    let array = assemble("a", &members, false, 1, &mut drive).unwrap();
    let long = || other("q".repeat(400));
    let longer = [long(), other("r".repeat(400))].concat();
    for refused in [array.grow(&longer, ids(), &mut drive), grow("a", &members, &longer, ids(), &mut drive).map(drop)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("a label has room for"), "{refused}");
    }
    array.grow(&long(), ids(), &mut drive).unwrap();
}

#[test]
fn a_store_with_a_label_that_is_not_understood_is_left_as_it_is() {
    let (members, others) = (stores(2), stores(4).split_off(2));
    create(&plan(2, false), &members, ids(), &mut drive).unwrap();
    drop(assemble("a", &members, false, 1, &mut drive).unwrap());
    create(&plan(2, false), &others, ids(), &mut drive).unwrap();
    rewrite(&members[1], |label| label.table.block_bytes = 1024);
    let before = content(&members[1]);
    let unknown = &members[1..];
    let array = assemble("a", &others, false, 2, &mut drive).unwrap();
    settle(&array);
    let ends = [
        members[1].label(&mut drive).map(drop),
        create(&plan(1, false), unknown, ids(), &mut drive).map(drop),
        create(&plan(1, true), unknown, ids(), &mut drive).map(drop),
        grow("a", &others, &[members[1].clone(), stores(1).remove(0)], ids(), &mut drive).map(drop),
        array.grow(&[members[1].clone(), stores(1).remove(0)], ids(), &mut drive),
        array.replace(1, &members[1], [7; 16], &mut drive),
        array.rejoin(1, &members[1], &mut drive),
    ];
    for end in ends {
        let Err(ArrayError::Illegible { place }) = &end else { panic!("{end:?}") };
        assert_eq!(place, "ram:1");
        assert!(end.unwrap_err().to_string().contains("the label of an array on ram:1 is one that this version"));
    }
    // It is not there for the array that it is a member of.
    assert!(matches!(assemble("a", &members, false, 3, &mut drive), Err(ArrayError::NoQuorum { .. })));
    assert!(View::new("a", &members, &mut drive).is_err());
    assert!(content(&members[1]) == before, "it was written");
}

#[test]
fn a_copy_of_a_label_that_is_not_understood_does_not_count_beside_one_that_is() {
    let members = stores(1);
    create(&plan(1, false), &members, ids(), &mut drive).unwrap();
    let mut label = members[0].label(&mut drive).unwrap().unwrap();
    let before = label.clone();
    (label.table.generation, label.table.block_bytes) = (9, 1024);
    let request = Request::Write { offset_bytes: COPIES[1], data: label.encode().into() };
    sanwire_store::run(&*members[0].store, request, kernel).unwrap();
    assert_eq!(members[0].label(&mut drive).unwrap(), Some(before));
    drop(assemble("a", &members, false, 1, &mut drive).unwrap());
    let label = members[0].label(&mut drive).unwrap().unwrap();
    assert!(
        label.table.run == 1
            && COPIES.iter().all(|at| content(&members[0])[*at as usize..].starts_with(&label.encode()))
    );
}
