//! Who only looks at an array reads what it holds, writes nothing, and learns of it when somebody has used it meanwhile.

use std::sync::Arc;

use sanwire_array::{Arrangement, Array, ArrayError, Begin, Candidate, Plan, View, assemble, create};
use sanwire_store::layer::{ErrorLayer, Over};
use sanwire_store::{Completion, ErrorKind, Outcome, RamStore, Request, Started, Store};

const MEMBER_BYTES: u64 = 8 << 20;

fn drive(begin: Begin) -> Completion {
    sanwire_store::drive(begin, |op| panic!("{op:?} is for the kernel"))
}

fn made(count: usize, copies: usize, arrangement: Arrangement) -> Vec<Candidate> {
    let ram = || -> Arc<dyn Store> { Arc::new(RamStore::new(MEMBER_BYTES, 512)) };
    let candidate = |number: usize| Candidate { place: number.to_string(), store: ram() };
    let members: Vec<_> = (0..count).map(candidate).collect();
    let plan = Plan { name: "a".to_owned(), arrangement, copies, force: false };
    let mut next = 0_u128;
    let fresh = || {
        next += 1;
        next.to_be_bytes()
    };
    create(&plan, &members, fresh, &mut drive).unwrap();
    members
}

fn ask(store: &(impl Store + Clone + 'static), request: Request) -> Completion {
    let store = store.clone();
    drive(Box::new(move |queue| store.start(request, queue)))
}

fn read(store: &(impl Store + Clone + 'static), offset_bytes: u64, length: usize) -> Vec<u8> {
    let request = Request::Read { offset_bytes, buffer: vec![9; length].into() };
    match ask(store, request).unwrap() {
        Outcome::Read(frame) => frame.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn write(store: &(impl Store + Clone + 'static), offset_bytes: u64, byte: u8, length: usize) {
    ask(store, Request::Write { offset_bytes, data: vec![byte; length].into() }).unwrap();
}

fn resync(array: &Array) {
    while array.members().iter().any(|member| member.behind_bytes > 0) {
        let step = |queue: &_| array.resync(queue).unwrap_or(Started::Done(Ok(Outcome::Done)));
        sanwire_store::drive(step, |op| panic!("{op:?} is for the kernel")).unwrap();
    }
}

fn content(members: &[Candidate]) -> Vec<Vec<u8>> {
    let read = |member: &Candidate| {
        let store = Arc::clone(&member.store);
        let request = Request::Read { offset_bytes: 0, buffer: vec![0; MEMBER_BYTES as usize].into() };
        match drive(Box::new(move |queue| store.start(request, queue))).unwrap() {
            Outcome::Read(frame) => frame.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    members.iter().map(read).collect()
}

#[test]
fn it_reads_what_the_array_holds_in_all_its_parts_and_writes_nothing() {
    for arrangement in [Arrangement::Concat, Arrangement::Stripe { chunk_bytes: 4096 }] {
        let members = made(4, 2, arrangement);
        let array = assemble("a", &members, false, 1, &mut drive).unwrap();
        let length_bytes = array.geometry().length_bytes;
        write(&array, 2048, 1, 8192);
        write(&array, length_bytes - 4096, 2, 4096);
        write(&array, length_bytes / 2 - 512, 3, 1024);
        let all = read(&array, 0, length_bytes as usize);
        drop(array);
        let before = content(&members);
        let view = View::new("a", &members, &mut drive).unwrap();
        assert!(read(&view, 0, length_bytes as usize) == all, "{arrangement:?}");
        let refused = ask(&view, Request::Write { offset_bytes: 0, data: vec![1; 512].into() });
        assert!(refused.is_err_and(|error| error.kind == ErrorKind::ReadOnly));
        view.check(&mut drive).unwrap();
        assert!(content(&members) == before, "something was written");
    }
}

#[test]
fn a_member_that_is_out_is_not_read_and_too_few_are_no_array() {
    let members = made(2, 2, Arrangement::Concat);
    let array = assemble("a", &members, false, 1, &mut drive).unwrap();
    resync(&array);
    drop(array);
    assert!(matches!(View::new("a", &members[..1], &mut drive), Err(ArrayError::NoQuorum { .. })));
    let second = assemble("a", &members[1..], true, 2, &mut drive).unwrap();
    write(&second, 0, 5, 512);
    drop(second);
    let view = View::new("a", &members, &mut drive).unwrap();
    assert_eq!(read(&view, 0, 512), [5; 512], "the first one lacks that");
    assert_eq!(view.found(), [true, true]);
    assert!(View::new("a", &members[..1], &mut drive).is_err());
}

#[test]
fn who_uses_the_array_meanwhile_is_noticed() {
    let members = made(3, 3, Arrangement::Concat);
    let view = View::new("a", &members, &mut drive).unwrap();
    // The first member is away for him, and has what was there before.
    let other = assemble("a", &members[1..], false, 2, &mut drive).unwrap();
    write(&other, 0, 7, 512);
    assert_eq!(read(&view, 0, 512), [0; 512]);
    assert!(matches!(view.check(&mut drive), Err(ArrayError::Used { .. })));
    drop(other);
    let view = View::new("a", &members, &mut drive).unwrap();
    assert_eq!(read(&view, 0, 512), [7; 512]);
    view.check(&mut drive).unwrap();
}

#[test]
fn a_host_beside_which_another_one_has_begun_finds_that_by_the_labels() {
    let members = made(2, 2, Arrangement::Concat);
    let first = assemble("a", &members, false, 1, &mut drive).unwrap();
    let check = |array: &Array| [0, 1].map(|number| array.check_owned(number, &mut drive).is_ok());
    assert_eq!(check(&first), [true, true]);
    resync(&first);
    assert_eq!(check(&first), [true, true]);
    let second = assemble("a", &members, false, 2, &mut drive).unwrap();
    assert_eq!((check(&first), check(&second)), ([false, false], [true, true]));
}

#[test]
fn what_one_copy_cannot_show_another_one_shows() {
    let mut members = made(2, 2, Arrangement::Concat);
    let array = assemble("a", &members, false, 1, &mut drive).unwrap();
    resync(&array);
    write(&array, 2 << 20, 6, 1024);
    drop(array);
    // The sector that is the first of the third MiB of data.
    let layer = ErrorLayer::new(vec!["read#6144..6145".parse().unwrap()], 0);
    members[0].store = Arc::new(Over::new(layer, Arc::clone(&members[0].store)));
    let view = View::new("a", &members, &mut drive).unwrap();
    assert_eq!(read(&view, 2 << 20, 1024), [6; 1024]);
    view.check(&mut drive).unwrap();
}
