use std::sync::Mutex;

use sanwire_store::{
    Capabilities, Completion, CompletionQueue, ErrorKind, Geometry, KernelOp, Outcome, RamStore, Started, Store,
};

use super::*;
use crate::array::Array;
use crate::assembly::assemble;
use crate::making::create;

const MIB: u64 = 1 << 20;

/// A store that becomes longer, and may refuse what is asked after some time.
#[derive(Debug)]
struct Growing {
    store: RamStore,
    length_bytes: Mutex<u64>,
    /// Writes that it takes still.
    writes: Mutex<usize>,
    /// Writes that all of them take still, together.
    all_writes: Arc<Mutex<usize>>,
    /// What it says of those behind this place.
    refusal: Mutex<Option<(u64, ErrorKind)>>,
}

impl Store for Growing {
    fn geometry(&self) -> Geometry {
        Geometry { length_bytes: *self.length_bytes.lock().unwrap(), ..self.store.geometry() }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(self.geometry())
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if let Request::Write { offset_bytes, .. } = request {
            let writes = &mut *self.writes.lock().unwrap();
            let all_writes = &mut *self.all_writes.lock().unwrap();
            let refusal = self.refusal.lock().unwrap().filter(|(from, _)| offset_bytes >= *from).map(|(_, kind)| kind);
            let is_over = *writes == 0 || *all_writes == 0;
            if let Some(kind) = refusal.or(is_over.then_some(ErrorKind::Unwritable)) {
                return Started::Done(Err(sanwire_store::StoreError::new(kind, offset_bytes)));
            }
            (*writes, *all_writes) = (*writes - 1, *all_writes - 1);
        }
        self.store.start(request, completions)
    }
}

fn stores(count: usize) -> (Vec<Candidate>, Vec<Arc<Growing>>) {
    let all_writes = Arc::new(Mutex::new(usize::MAX));
    let stores: Vec<_> = (0..count)
        .map(|_| {
            let (store, all_writes) = (RamStore::new(16 * MIB, 512), Arc::clone(&all_writes));
            let (length_bytes, writes) = (Mutex::new(4 * MIB), Mutex::new(usize::MAX));
            Arc::new(Growing { store, length_bytes, writes, all_writes, refusal: Mutex::default() })
        })
        .collect();
    let candidate = |(number, store): (usize, &Arc<Growing>)| Candidate {
        place: format!("ram:{number}"),
        store: Arc::clone(store) as Arc<dyn Store>,
    };
    (stores.iter().enumerate().map(candidate).collect(), stores)
}

fn kernel(op: KernelOp) -> Completion {
    panic!("{op:?} is for the kernel")
}

fn drive(begin: crate::Begin) -> Completion {
    sanwire_store::drive(begin, kernel)
}

fn ids() -> impl FnMut() -> [u8; 16] {
    static NEXT: Mutex<u64> = Mutex::new(0);
    || {
        let next = &mut *NEXT.lock().unwrap();
        *next += 1;
        u128::from(*next).to_be_bytes()
    }
}

fn plan(arrangement: Arrangement, copies: usize) -> Plan {
    Plan { name: "a".to_owned(), arrangement, copies, force: false }
}

/// Assembles it, and makes all its copies the same.
fn used(candidates: &[Candidate]) -> Array {
    let run = u64::from_be_bytes(ids()()[8..].try_into().unwrap());
    let array = assemble("a", candidates, false, run, &mut drive).unwrap();
    let mut is_flushed = false;
    loop {
        let mut has_begun = false;
        let begin = |completions: &CompletionQueue| match array.resync(completions).or_else(|| array.tidy(completions))
        {
            Some(started) => {
                has_begun = true;
                started
            }
            None => Started::Done(Ok(Outcome::Done)),
        };
        sanwire_store::drive(begin, kernel).unwrap();
        if !has_begun {
            if is_flushed {
                return array;
            }
            // Only then it is known that nothing differs.
            sanwire_store::run(&array, Request::Flush, kernel).unwrap();
            is_flushed = true;
        }
    }
}

fn write(array: &Array, at: u64, byte: u8) {
    let data = vec![byte; 4096].into();
    sanwire_store::run(array, Request::Write { offset_bytes: at, data }, kernel).unwrap();
}

fn read_back(array: &Array, at: u64) -> u8 {
    match sanwire_store::run(array, Request::Read { offset_bytes: at, buffer: vec![9; 4096].into() }, kernel).unwrap() {
        Outcome::Read(frame) => {
            assert!(frame.iter().all(|byte| *byte == frame[0]));
            frame[0]
        }
        other => panic!("{other:?}"),
    }
}

fn set_length(stores: &[Arc<Growing>], length_bytes: u64) {
    stores.iter().for_each(|store| *store.length_bytes.lock().unwrap() = length_bytes);
}

#[test]
fn what_was_there_stays_where_it_was_and_what_is_new_can_be_used() {
    let stripe = Arrangement::Stripe { chunk_bytes: 65_536 };
    for (arrangement, copies, added, sizes) in [
        (Arrangement::Concat, 2, 0, [4, 12]),
        (Arrangement::Concat, 2, 2, [4, 22]),
        (Arrangement::Concat, 4, 0, [2, 10]),
        (stripe, 1, 0, [8, 40]),
        (stripe, 2, 0, [4, 20]),
    ] {
        let (candidates, stores) = stores(4 + added);
        let (members, others) = candidates.split_at(4);
        create(&plan(arrangement, copies), members, ids(), &mut drive).unwrap();
        let array = used(members);
        let before = array.geometry().length_bytes;
        assert_eq!(before, sizes[0] * MIB);
        let places: Vec<u64> = (0..before / MIB).map(|mib| mib * MIB + 65_536).collect();
        (1..).zip(&places).for_each(|(byte, at)| write(&array, *at, byte));
        drop(array);
        drop(used(members));
        let refused = grow("a", members, &[], ids(), &mut drive).unwrap_err();
        assert!(refused.to_string().contains("no more room"), "{refused}");
        for (byte, store) in (1..).zip(&stores) {
            // In what is new every store has something else.
            let data = vec![byte; 4096].into();
            sanwire_store::run(&store.store, Request::Write { offset_bytes: 9 * MIB, data }, kernel).unwrap();
        }
        set_length(&stores, 12 * MIB);
        grow("a", members, others, ids(), &mut drive).unwrap();
        let array = used(&candidates);
        assert_eq!(array.geometry().length_bytes, sizes[1] * MIB, "{arrangement:?} {copies} {added}");
        (1..).zip(&places).for_each(|(byte, at)| assert_eq!(read_back(&array, *at), byte));
        for at in (before..sizes[1] * MIB).step_by(MIB as usize) {
            write(&array, at, 77);
            assert_eq!(read_back(&array, at), 77);
        }
        assert_eq!(array.scrub(&mut drive).unwrap(), 0);
    }
}

#[test]
fn an_array_that_could_not_grow_is_as_it_was_or_has_grown() {
    for writes in 0..14 {
        for failing in 0..4 {
            let (candidates, stores) = stores(4);
            let (members, others) = candidates.split_at(2);
            create(&plan(Arrangement::Concat, 2), members, ids(), &mut drive).unwrap();
            write(&used(members), 4096, 5);
            drop(used(members));
            set_length(&stores, 12 * MIB);
            *stores[failing].writes.lock().unwrap() = writes;
            let end = grow("a", members, others, ids(), &mut drive);
            *stores[failing].writes.lock().unwrap() = usize::MAX;
            let array = used(&candidates);
            let length_bytes = array.geometry().length_bytes;
            assert!(if end.is_ok() { length_bytes == 20 * MIB } else { [2, 20].contains(&(length_bytes / MIB)) });
            assert_eq!(read_back(&array, 4096), 5);
            write(&array, length_bytes - 4096, 6);
            assert_eq!((read_back(&array, length_bytes - 4096), array.scrub(&mut drive).unwrap()), (6, 0));
        }
    }
}

#[test]
fn an_array_in_use_has_what_is_new_at_once_and_all_copies_have_it() {
    let stripe = Arrangement::Stripe { chunk_bytes: 65_536 };
    for (arrangement, copies, added, sizes) in [
        (Arrangement::Concat, 2, 0, [4, 12]),
        (Arrangement::Concat, 2, 2, [4, 22]),
        (Arrangement::Concat, 4, 4, [2, 20]),
        (Arrangement::Concat, 1, 1, [8, 26]),
        (stripe, 1, 0, [8, 40]),
        (stripe, 2, 0, [4, 20]),
    ] {
        let (candidates, stores) = stores(4 + added);
        let (members, others) = candidates.split_at(4);
        create(&plan(arrangement, copies), members, ids(), &mut drive).unwrap();
        let array = used(members);
        let before = array.geometry().length_bytes;
        assert_eq!(before, sizes[0] * MIB);
        let refused = array.grow(&[], ids(), &mut drive).unwrap_err();
        assert!(refused.to_string().contains("no more room"), "{refused}");
        let places: Vec<u64> = (0..before / MIB).map(|mib| mib * MIB + 65_536).collect();
        (1..).zip(&places).for_each(|(byte, at)| write(&array, *at, byte));
        for (byte, store) in (1..).zip(&stores) {
            // In what is new every store has something else.
            let data = vec![byte; 4096].into();
            sanwire_store::run(&store.store, Request::Write { offset_bytes: 9 * MIB, data }, kernel).unwrap();
        }
        set_length(&stores, 12 * MIB);
        array.grow(others, ids(), &mut drive).unwrap();
        assert_eq!(array.geometry().length_bytes, sizes[1] * MIB, "{arrangement:?} {copies} {added}");
        assert_eq!(array.members().len(), 4 + added);
        let is_whole = |member: &crate::MemberStatus| member.standing == Standing::In && member.behind_bytes == 0;
        assert!(array.members().iter().all(is_whole), "{:?}", array.members());
        assert_eq!(array.scrub(&mut drive).unwrap(), 0);
        for at in (before..sizes[1] * MIB).step_by(MIB as usize) {
            write(&array, at, 77);
        }
        drop(array);
        let array = used(&candidates);
        assert_eq!(array.geometry().length_bytes, sizes[1] * MIB);
        (1..).zip(&places).for_each(|(byte, at)| assert_eq!(read_back(&array, *at), byte));
        for at in (before..sizes[1] * MIB).step_by(MIB as usize) {
            assert_eq!(read_back(&array, at), 77);
        }
        assert_eq!(array.scrub(&mut drive).unwrap(), 0);
    }
}

#[test]
fn an_array_in_use_that_could_not_grow_goes_on_as_it_was_or_as_it_is_to_be() {
    for writes in 0..14 {
        for failing in 0..4 {
            let (candidates, stores) = stores(4);
            let (members, others) = candidates.split_at(2);
            create(&plan(Arrangement::Concat, 2), members, ids(), &mut drive).unwrap();
            let array = used(members);
            write(&array, 4096, 5);
            set_length(&stores, 12 * MIB);
            *stores[failing].writes.lock().unwrap() = writes;
            let end = array.grow(others, ids(), &mut drive);
            let length_bytes = array.geometry().length_bytes;
            assert!(if end.is_ok() { length_bytes == 20 * MIB } else { [2, 20].contains(&(length_bytes / MIB)) });
            write(&array, 8192, 6);
            *stores[failing].writes.lock().unwrap() = usize::MAX;
            drop(array);
            let array = used(&candidates);
            assert_eq!(array.geometry().length_bytes, length_bytes, "{writes} {failing}");
            assert_eq!((read_back(&array, 4096), read_back(&array, 8192)), (5, 6));
            write(&array, length_bytes - 4096, 7);
            assert_eq!((read_back(&array, length_bytes - 4096), array.scrub(&mut drive).unwrap()), (7, 0));
            if length_bytes == 2 * MIB {
                // What has a label of the growth that came to nothing can be taken all the same.
                array.grow(others, ids(), &mut drive).unwrap();
                assert_eq!(array.geometry().length_bytes, 20 * MIB);
            }
        }
    }
}

/// Nothing that it does from then on comes to any member.
#[test]
fn a_host_may_end_before_each_write_of_a_growth() {
    for copies in [1, 2] {
        let mut lengths = Vec::new();
        for writes in 0..30 {
            let (candidates, stores) = stores(4);
            let (members, others) = candidates.split_at(2);
            create(&plan(Arrangement::Concat, copies), members, ids(), &mut drive).unwrap();
            let array = used(members);
            let before = array.geometry().length_bytes;
            write(&array, 4096, 5);
            set_length(&stores, 12 * MIB);
            *stores[0].all_writes.lock().unwrap() = writes;
            let end = array.grow(others, ids(), &mut drive);
            drop(array);
            *stores[0].all_writes.lock().unwrap() = usize::MAX;
            let array = used(&candidates);
            let length_bytes = array.geometry().length_bytes;
            assert!(if end.is_ok() { length_bytes > before } else { length_bytes >= before }, "{writes}: {end:?}");
            assert_eq!((read_back(&array, 4096), array.scrub(&mut drive).unwrap()), (5, 0));
            if length_bytes == before {
                array.grow(others, ids(), &mut drive).unwrap();
            }
            write(&array, array.geometry().length_bytes - 4096, 7);
            lengths.push((length_bytes, array.geometry().length_bytes));
        }
        let (last, grown) = (lengths[29], lengths[29].1);
        assert!(lengths[0].0 < grown && last.0 == grown, "{lengths:?}");
        assert!(lengths.iter().all(|(found, then)| [lengths[0].0, grown].contains(found) && *then == grown));
        assert!(lengths.is_sorted(), "it is as it was until it is as it was to be: {lengths:?}");
    }
}

/// The space may have been another one's, whose label stands just where the last one of a member is to be.
#[test]
fn what_stands_at_the_end_of_what_members_became_longer_by_is_not_taken_for_their_labels() {
    for writes in 0..20 {
        let (candidates, stores) = stores(2);
        create(&plan(Arrangement::Concat, 2), &candidates, ids(), &mut drive).unwrap();
        let array = used(&candidates);
        write(&array, 4096, 5);
        let mut other = candidates[0].label(&mut drive).unwrap().unwrap();
        (other.table.array, other.table.generation, other.table.name) = ([99; 16], 1000, "other".to_owned());
        for store in &stores {
            let offset_bytes = label::last_at(12 * MIB).unwrap();
            let request = Request::Write { offset_bytes, data: other.encode().into() };
            sanwire_store::run(&store.store, request, kernel).unwrap();
        }
        set_length(&stores, 12 * MIB);
        *stores[0].all_writes.lock().unwrap() = writes;
        let end = array.grow(&[], ids(), &mut drive);
        *stores[0].all_writes.lock().unwrap() = usize::MAX;
        let array = used(&candidates);
        let length_bytes = array.geometry().length_bytes;
        assert!([2 * MIB, 10 * MIB].contains(&length_bytes) && (end.is_err() || length_bytes == 10 * MIB), "{end:?}");
        assert_eq!((read_back(&array, 4096), array.scrub(&mut drive).unwrap()), (5, 0), "{writes}");
    }
}

#[test]
fn an_array_without_space_for_labels_at_its_new_end_goes_on_as_it_was() {
    for copies in [1, 2] {
        let (candidates, stores) = stores(copies);
        create(&plan(Arrangement::Concat, copies), &candidates, ids(), &mut drive).unwrap();
        let array = used(&candidates);
        set_length(&stores, 12 * MIB);
        stores.iter().for_each(|store| *store.refusal.lock().unwrap() = Some((11 * MIB, ErrorKind::Full)));
        for byte in [5, 6] {
            array.grow(&[], ids(), &mut drive).unwrap_err();
            write(&array, 4096, byte);
            sanwire_store::run(&array, Request::Flush, kernel).unwrap();
            assert!(array.members().iter().all(|member| member.is_present && member.standing == Standing::In));
        }
        assert_eq!((array.geometry().length_bytes, read_back(&array, 4096)), (2 * MIB, 6));
        if copies == 2 {
            // The label of the other one has to say so, and has no space at its end.
            *stores[1].refusal.lock().unwrap() = Some((0, ErrorKind::Gone));
            write(&array, 4096, 7);
            assert_eq!(array.members().iter().map(|member| member.is_present).collect::<Vec<_>>(), [true, false]);
            drop(array);
            let array = used(&candidates[..1]);
            assert_eq!((array.geometry().length_bytes, read_back(&array, 4096)), (2 * MIB, 7));
            continue;
        }
        stores.iter().for_each(|store| *store.refusal.lock().unwrap() = None);
        array.grow(&[], ids(), &mut drive).unwrap();
        assert_eq!(array.geometry().length_bytes, 10 * MIB);
    }
}

#[test]
fn a_member_that_does_not_answer_while_copies_are_made_the_same_is_given_up() {
    let (candidates, stores) = stores(2);
    create(&plan(Arrangement::Concat, 2), &candidates, ids(), &mut drive).unwrap();
    let array = used(&candidates);
    let request = Request::Write { offset_bytes: 9 * MIB, data: vec![8; 4096].into() };
    sanwire_store::run(&stores[0].store, request, kernel).unwrap();
    set_length(&stores, 12 * MIB);
    *stores[1].refusal.lock().unwrap() = Some((4 * MIB, ErrorKind::Gone));
    array.grow(&[], ids(), &mut drive).unwrap_err();
    assert_eq!(array.members().iter().map(|member| member.is_present).collect::<Vec<_>>(), [true, false]);
    write(&array, 4096, 5);
    assert_eq!((array.geometry().length_bytes, read_back(&array, 4096)), (2 * MIB, 5));
}

/// What one makes the same, before anything is written there, the other one would make the same afterwards.
#[test]
fn an_array_is_made_longer_by_one_at_a_time() {
    let (candidates, stores) = stores(2);
    create(&plan(Arrangement::Concat, 2), &candidates, ids(), &mut drive).unwrap();
    let array = used(&candidates);
    set_length(&stores, 12 * MIB);
    let (second, mut refused) = (array.clone(), Vec::new());
    let mut meanwhile = |begin| {
        refused.push(second.grow(&[], ids(), &mut drive).unwrap_err().to_string());
        drive(begin)
    };
    array.grow(&[], ids(), &mut meanwhile).unwrap();
    assert!(refused.iter().all(|error| error.contains("being made longer")) && !refused.is_empty(), "{refused:?}");
    assert_eq!(array.geometry().length_bytes, 10 * MIB);
}

/// The space may have been another one's, whose label stands just where the last one of a member is to be.
#[test]
fn the_label_of_another_array_at_the_new_end_of_a_member_is_not_taken_for_its_own() {
    for writes in 0..7 {
        for failing in 0..2 {
            let (candidates, stores) = stores(2);
            create(&plan(Arrangement::Concat, 2), &candidates, ids(), &mut drive).unwrap();
            write(&used(&candidates), 4096, 5);
            drop(used(&candidates));
            let mut other = candidates[0].label(&mut drive).unwrap().unwrap();
            (other.table.array, other.table.generation, other.table.name) = ([99; 16], 1000, "other".to_owned());
            for store in &stores {
                let at = label::last_at(12 * MIB).unwrap();
                let request = Request::Write { offset_bytes: at, data: other.encode().into() };
                sanwire_store::run(&store.store, request, kernel).unwrap();
            }
            set_length(&stores, 12 * MIB);
            *stores[failing].writes.lock().unwrap() = writes;
            let end = grow("a", &candidates, &[], ids(), &mut drive);
            *stores[failing].writes.lock().unwrap() = usize::MAX;
            assert!(end.is_ok() || writes < 5, "{writes}: {end:?}");
            let array = used(&candidates);
            let length_bytes = array.geometry().length_bytes;
            assert!(
                [2 * MIB, 10 * MIB].contains(&length_bytes) && (end.is_err() || length_bytes == 10 * MIB),
                "{end:?}"
            );
            assert_eq!((read_back(&array, 4096), array.scrub(&mut drive).unwrap()), (5, 0), "{writes} {failing}");
        }
    }
}

/// Its label says that it is of this array; with a new one the array would lack a member.
#[test]
fn a_member_is_not_added_a_second_time_by_another_way() {
    let (candidates, stores) = stores(2);
    let (members, _) = candidates.split_at(1);
    create(&plan(Arrangement::Concat, 1), members, ids(), &mut drive).unwrap();
    write(&used(members), 4096, 5);
    let again = Candidate { place: "by another way".to_owned(), store: Arc::clone(&members[0].store) };
    let refused = grow("a", members, &[again], ids(), &mut drive);
    assert!(matches!(refused, Err(ArrayError::Member { .. })), "{refused:?}");
    assert_eq!(read_back(&used(members), 4096), 5);
    drop(stores);
}

/// A store that has something done once, before it takes a request of a kind.
struct Slow {
    store: RamStore,
    is_slow: fn(&Request) -> bool,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Slow").finish_non_exhaustive()
    }
}

impl Store for Slow {
    fn geometry(&self) -> Geometry {
        self.store.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let meanwhile = if (self.is_slow)(&request) { self.meanwhile.lock().unwrap().take() } else { None };
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        self.store.start(request, completions)
    }
}

#[test]
fn a_write_does_not_wait_for_a_slow_store_that_comes_in_when_a_member_fails() {
    let (candidates, stores) = stores(2);
    create(&plan(Arrangement::Concat, 2), &candidates, ids(), &mut drive).unwrap();
    let array = used(&candidates);
    let (told, is_written) = std::sync::mpsc::channel();
    let (writer, failing) = (array.clone(), Arc::clone(&stores[1]));
    let meanwhile = move || {
        *failing.refusal.lock().unwrap() = Some((0, ErrorKind::Gone));
        let (end, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            write(&writer, 4096, 5);
            end.send(()).unwrap();
        });
        told.send(ended.recv_timeout(std::time::Duration::from_secs(20)).is_ok()).unwrap();
    };
    let slow = Slow {
        store: RamStore::new(8 * MIB, 512),
        is_slow: |request| matches!(request, Request::Write { .. }),
        meanwhile: Mutex::new(Some(Box::new(meanwhile))),
    };
    let others = [
        Candidate { place: "slow".to_owned(), store: Arc::new(slow) },
        Candidate { place: "quick".to_owned(), store: Arc::new(RamStore::new(8 * MIB, 512)) },
    ];
    let refused = array.grow(&others, ids(), &mut drive).unwrap_err();
    assert!(is_written.recv().unwrap(), "it has waited for the store");
    assert!(refused.to_string().contains("a member went away"), "{refused}");
    assert_eq!((array.geometry().length_bytes, read_back(&array, 4096)), (2 * MIB, 5));
    drop(array);
    let array = used(&candidates[..1]);
    assert_eq!((array.geometry().length_bytes, read_back(&array, 4096)), (2 * MIB, 5));
}

/// One member is slow to write that the array is longer, and something is written to another one.
#[test]
fn a_write_does_not_wait_for_the_labels_of_an_array_that_becomes_longer() {
    let (candidates, _) = stores(2);
    let (first, added) = candidates.split_at(1);
    let slow = Arc::new(Slow {
        store: RamStore::new(4 * MIB, 512),
        is_slow: |request| matches!(request, Request::Write { offset_bytes: 0 | label::SECOND_AT, .. }),
        meanwhile: Mutex::default(),
    });
    let second = Candidate { place: "slow".to_owned(), store: Arc::clone(&slow) as Arc<dyn Store> };
    let members = [first, &[second]].concat();
    create(&plan(Arrangement::Concat, 1), &members, ids(), &mut drive).unwrap();
    let array = used(&members);
    let (told, is_written) = std::sync::mpsc::channel();
    let writer = array.clone();
    let meanwhile = move || {
        let (end, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            write(&writer, 4096, 5);
            end.send(()).unwrap();
        });
        told.send(ended.recv_timeout(std::time::Duration::from_secs(20)).is_ok()).unwrap();
    };
    *slow.meanwhile.lock().unwrap() = Some(Box::new(meanwhile));
    array.grow(added, ids(), &mut drive).unwrap();
    assert!(is_written.recv().unwrap(), "it has waited for the label of a member that is not written");
    assert_eq!((array.geometry().length_bytes, read_back(&array, 4096)), (6 * MIB, 5));
    drop(array);
    let array = used(&[&members[..], added].concat());
    assert_eq!((array.geometry().length_bytes, read_back(&array, 4096)), (6 * MIB, 5));
}

#[test]
fn a_store_whose_place_no_label_has_room_for_is_not_added() {
    let (candidates, _) = stores(2);
    let (members, others) = candidates.split_at(1);
    create(&plan(Arrangement::Concat, 1), members, ids(), &mut drive).unwrap();
    let other = Candidate { place: "p".repeat(label::PLACE_MAX_BYTES + 1), ..others[0].clone() };
    let refused = used(members).grow(std::slice::from_ref(&other), ids(), &mut drive).unwrap_err().to_string();
    assert!(refused.contains("longer than the 400 bytes that a label has for it"), "{refused}");
    let refused = grow("a", members, &[other], ids(), &mut drive).unwrap_err().to_string();
    assert!(refused.contains("longer than the 400 bytes that a label has for it"), "{refused}");
    used(members).grow(others, ids(), &mut drive).unwrap();
}

/// Its label says that it is there, and those of the others do not need it for that.
#[test]
fn a_new_member_that_fails_as_soon_as_it_has_its_label_keeps_nobody_from_the_others() {
    let mut grown = Vec::new();
    for writes in 0..12 {
        let (candidates, stores) = stores(2);
        let (members, others) = candidates.split_at(1);
        create(&plan(Arrangement::Concat, 1), members, ids(), &mut drive).unwrap();
        let array = used(members);
        *stores[1].writes.lock().unwrap() = writes;
        let end = array.grow(others, ids(), &mut drive);
        let length_bytes = array.geometry().length_bytes;
        assert_eq!(length_bytes, if end.is_ok() { 4 * MIB } else { 2 * MIB }, "{writes}: {end:?}");
        write(&array, 4096, 5);
        assert_eq!(read_back(&array, 4096), 5);
        *stores[1].writes.lock().unwrap() = usize::MAX;
        if end.is_err() {
            array.grow(others, ids(), &mut drive).unwrap();
        }
        write(&array, 3 * MIB, 6);
        drop(array);
        let array = used(&candidates);
        assert_eq!((read_back(&array, 4096), read_back(&array, 3 * MIB)), (5, 6));
        grown.push(end.is_ok());
    }
    assert!(!grown[0] && grown[11] && grown.is_sorted(), "{grown:?}");
}

/// Nobody knows of the store by then: it is found, or not.
#[test]
fn what_a_growth_that_came_to_nothing_has_left_on_a_store_hides_no_array_that_grows_later() {
    let mut are_left = Vec::new();
    for writes in 0..16 {
        let (candidates, stores) = stores(3);
        let (members, others) = candidates.split_at(2);
        create(&plan(Arrangement::Concat, 1), members, ids(), &mut drive).unwrap();
        write(&used(members), 4096, 5);
        *stores[0].all_writes.lock().unwrap() = writes;
        let end = grow("a", members, others, ids(), &mut drive);
        *stores[0].all_writes.lock().unwrap() = usize::MAX;
        let length_bytes = |members: &[Candidate]| {
            let labels =
                members.iter().filter_map(|member| Some((member.place.clone(), member.label(&mut drive).unwrap()?)));
            find("a", &labels.collect::<Vec<_>>()).unwrap().table.layout().length_bytes()
        };
        if end.is_ok() || length_bytes(&candidates) != 4 * MIB {
            continue;
        }
        are_left.push(candidates[2].label(&mut drive).unwrap().is_some());
        set_length(&stores[1..2], 12 * MIB);
        grow("a", members, &[], ids(), &mut drive).unwrap();
        assert_eq!((length_bytes(members), length_bytes(&candidates)), (12 * MIB, 12 * MIB), "{writes}");
        assert_eq!(read_back(&used(&candidates), 4096), 5);
    }
    assert!(are_left.is_sorted() && are_left.contains(&true), "{are_left:?}");
}

#[test]
fn a_host_that_had_an_array_before_it_grew_takes_no_member_of_it_back() {
    let (candidates, stores) = stores(2);
    create(&plan(Arrangement::Concat, 2), &candidates, ids(), &mut drive).unwrap();
    let array = used(&candidates);
    *stores[1].refusal.lock().unwrap() = Some((0, ErrorKind::Gone));
    write(&array, 4096, 5);
    *stores[1].refusal.lock().unwrap() = None;
    array.rejoin(1, &candidates[1], &mut drive).unwrap();
    while array.members().iter().any(|member| member.standing != Standing::In) {
        sanwire_store::drive(|queue| array.resync(queue).unwrap(), kernel).unwrap();
    }
    sanwire_store::run(&array, Request::Flush, kernel).unwrap();
    sanwire_store::drive(|queue| array.tidy(queue).unwrap(), kernel).unwrap();
    // It does not hear of that.
    set_length(&stores, 12 * MIB);
    grow("a", &candidates, &[], ids(), &mut drive).unwrap();
    *stores[1].refusal.lock().unwrap() = Some((0, ErrorKind::Gone));
    let data = vec![6; 4096].into();
    let _ = sanwire_store::run(&array, Request::Write { offset_bytes: 8192, data }, kernel);
    *stores[1].refusal.lock().unwrap() = None;
    let refused = array.rejoin(1, &candidates[1], &mut drive);
    assert!(matches!(refused, Err(ArrayError::TakenOver { .. })), "{refused:?}");
}

#[test]
fn a_member_without_space_for_the_last_copy_of_its_label_comes_back_and_stays() {
    let (candidates, stores) = stores(2);
    create(&plan(Arrangement::Concat, 2), &candidates, ids(), &mut drive).unwrap();
    let array = used(&candidates);
    set_length(&stores, 12 * MIB);
    let is_full = Some((11 * MIB, ErrorKind::Full));
    stores.iter().for_each(|store| *store.refusal.lock().unwrap() = is_full);
    array.grow(&[], ids(), &mut drive).unwrap_err();
    grow("a", &candidates, &[], ids(), &mut drive).unwrap_err();
    let mut array = array;
    for (byte, number) in [(5, 1), (6, 0)] {
        *stores[number].refusal.lock().unwrap() = Some((0, ErrorKind::Gone));
        write(&array, 4096, byte);
        assert!(!array.members()[number].is_present);
        *stores[number].refusal.lock().unwrap() = is_full;
        array.rejoin(number, &candidates[number], &mut drive).unwrap();
        while array.members()[number].standing != Standing::In {
            sanwire_store::drive(|queue| array.resync(queue).unwrap(), kernel).unwrap();
        }
        // As after a restart.
        drop(array);
        array = used(&candidates);
        assert!(array.members().iter().all(|member| member.is_present && member.standing == Standing::In));
        assert_eq!((array.geometry().length_bytes, read_back(&array, 4096)), (2 * MIB, byte));
    }
    assert_eq!(array.scrub(&mut drive).unwrap(), 0);
}

#[test]
fn a_growth_without_space_for_labels_changes_nothing_where_nobody_uses_the_array() {
    for failing in 0..2 {
        let (candidates, stores) = stores(2);
        create(&plan(Arrangement::Concat, 1), &candidates, ids(), &mut drive).unwrap();
        write(&used(&candidates), 4096, 5);
        let labels = || candidates.iter().map(|member| member.label(&mut drive).unwrap().unwrap()).collect::<Vec<_>>();
        let before = labels();
        set_length(&stores, 12 * MIB);
        *stores[failing].refusal.lock().unwrap() = Some((11 * MIB, ErrorKind::Full));
        grow("a", &candidates, &[], ids(), &mut drive).unwrap_err();
        assert_eq!(labels(), before);
        *stores[failing].refusal.lock().unwrap() = None;
        grow("a", &candidates, &[], ids(), &mut drive).unwrap();
        assert_eq!(used(&candidates).geometry().length_bytes, 12 * MIB);
    }
}
