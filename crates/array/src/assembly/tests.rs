use super::*;
use crate::label::MemberRecord;
use crate::layout::Arrangement;

fn table(generation: u64, standings: &[Standing]) -> Table {
    let member = |(number, standing): (usize, &Standing)| MemberRecord {
        id: [number as u8 + 1; 16],
        standing: *standing,
        data_bytes: 1 << 20,
        place: format!("place{}", number + 1),
    };
    Table {
        array: [7; 16],
        name: "a".to_owned(),
        generation,
        run: 1,
        runs: Vec::new(),
        arrangement: Arrangement::Concat,
        copies: standings.len(),
        block_bytes: 512,
        region_bytes: 1 << 20,
        members: standings.iter().enumerate().map(member).collect(),
        former: Vec::new(),
    }
}

const OUT: Standing = Standing::Out { since: 5, is_whole: false };
const IN: Standing = Standing::In;

fn labels(of: &[(usize, Table)]) -> Vec<(String, Label)> {
    of.iter().map(|(own, table)| (format!("place{}", own + 1), Label { own: *own, table: table.clone() })).collect()
}

#[test]
fn of_two_copies_one_alone_is_not_known_to_be_the_newest_until_it_is() {
    let both = table(4, &[IN, IN]);
    let found = find("a", &labels(&[(0, both.clone())])).unwrap();
    assert!(matches!(found.check(), Err(ArrayError::NoQuorum { present: 1, wanted: 2, .. })));
    assert_eq!(found.missing().collect::<Vec<_>>(), ["place2"]);
    let first = table(5, &[IN, OUT]);
    let found = find("a", &labels(&[(0, first.clone())])).unwrap();
    found.check().unwrap();
    // The other one is older, and known to be.
    let found = find("a", &labels(&[(1, both), (0, first)])).unwrap();
    found.check().unwrap();
    assert_eq!((found.table.generation, found.members), (5, vec![Some(1), Some(0)]));
}

#[test]
fn older_members_are_not_the_array_however_many_they_are() {
    let (all, newer) = (table(4, &[IN, IN, IN, IN]), table(5, &[IN, IN, OUT, OUT]));
    let older = find("a", &labels(&[(2, all.clone()), (3, all.clone())])).unwrap();
    assert!(older.check().is_err());
    find("a", &labels(&[(0, newer.clone()), (1, newer.clone())])).unwrap().check().unwrap();
    let mixed = find("a", &labels(&[(2, all.clone()), (3, all), (0, newer)])).unwrap();
    assert!(mixed.check().is_err(), "one of two that are in");
}

#[test]
fn what_was_used_apart_is_not_put_together() {
    let one = table(5, &[IN, OUT]);
    for generation in [5, 9] {
        let mut other = table(4, &[OUT, IN]);
        other.begin_run(2, 1..2);
        other.generation = generation;
        let found = find("a", &labels(&[(0, one.clone()), (1, other)]));
        assert!(matches!(found, Err(ArrayError::Split { .. })), "{found:?}");
    }
}

#[test]
fn what_was_about_to_be_said_when_a_host_ended_does_not_count() {
    let (before, all) = (table(5, &[IN, IN, IN]), table(6, &[IN, IN, OUT]));
    let found = find("a", &labels(&[(0, all.clone()), (1, before.clone()), (2, before.clone())])).unwrap();
    assert_eq!(found.table, before);
    // The next host did not see that member, and went on without it, however often that was said to it before.
    let mut next = before.clone();
    next.begin_run(2, 1..3);
    (next.generation, next.members[0].standing) = (6, OUT);
    let mut often = all.clone();
    often.generation = 20;
    for said in [all, often] {
        let found = find("a", &labels(&[(0, said.clone()), (1, next.clone()), (2, next.clone())])).unwrap();
        assert_eq!(found.table, next);
        let alone = find("a", &labels(&[(0, said.clone()), (1, next.clone())])).unwrap();
        assert!(alone.check().is_err(), "{alone:?}");
        // And has said something else to one of its members.
        let mut last = next.clone();
        (last.generation, last.members[2].standing) = (30, OUT);
        let found = find("a", &labels(&[(0, said.clone()), (1, last.clone()), (2, next.clone())])).unwrap();
        assert_eq!(found.table, last, "that is on all of its members");
    }
}

#[test]
fn a_member_that_came_back_from_an_earlier_run_is_not_the_array() {
    let first = table(4, &[IN, IN]);
    let mut second = first.clone();
    second.begin_run(2, 0..2);
    second.generation = 5;
    let mut third = second.clone();
    third.begin_run(3, 0..2);
    third.generation = 6;
    // A host that began a run and ended before all labels said so.
    let torn = find("a", &labels(&[(0, second.clone()), (1, third.clone())])).unwrap();
    assert_eq!(torn.table, second);
    // A label of two runs before is none that a host has left there.
    let older = find("a", &labels(&[(0, first.clone()), (1, third.clone())]));
    assert!(
        matches!(&older, Err(ArrayError::Older { older, newer }) if older == "place1" && newer == "place2"),
        "{older:?}"
    );
    // One that is out is older, and is brought up to date.
    third.members[0].standing = OUT;
    let found = find("a", &labels(&[(0, first), (1, third.clone())])).unwrap();
    assert_eq!(found.table, third);
    // One that another run, which came to nothing, has said something to.
    let mut before = table(4, &[IN, IN, IN]);
    before.begin_run(2, 0..3);
    let [other, next] = [9, 4].map(|run| {
        let mut begun = before.clone();
        begun.begin_run(run, 0..3);
        begun
    });
    let found = find("a", &labels(&[(0, other), (1, next), (2, before.clone())])).unwrap();
    assert_eq!(found.table, before);
}

/// The tables of three runs of a mirror. The last one, in which its first member goes out, has found the members from this one on.
fn three_runs(found_from: usize) -> [Table; 3] {
    let first = table(4, &[IN, IN]);
    let mut second = first.clone();
    second.begin_run(2, 0..2);
    second.generation = 5;
    let mut third = second.clone();
    third.begin_run(3, found_from..2);
    (third.generation, third.members[0].standing) = (7, Standing::Out { since: 7, is_whole: false });
    [first, second, third]
}

#[test]
fn a_member_that_is_out_is_known_from_an_older_image_of_it() {
    let [first, second, third] = three_runs(0);
    assert!(third.is_before_out(0, &first));
    assert!(!third.is_before_out(0, &second), "the third run has not reached it, perhaps");
    assert!(!third.is_before_out(0, &third) && !third.is_before_out(1, &first), "the other one is in");
    // A run that came to nothing has said something to it.
    let [mut of_second, mut of_first] = [second, first.clone()];
    of_second.begin_run(8, 0..2);
    of_first.begin_run(9, 0..2);
    assert!(!third.is_before_out(0, &of_second) && third.is_before_out(0, &of_first));
    // It stays out in other runs.
    let mut last = third.clone();
    (4..20).for_each(|run| last.begin_run(run, 1..2));
    assert!(!last.is_before_out(0, &third));
    assert!(!last.is_before_out(0, &first), "those runs are forgotten");
}

/// The host of the second run died before its label reached a member, which was not found by the third.
#[test]
fn a_member_that_a_run_has_not_reached_is_not_older_than_it_was() {
    let [first, _, third] = three_runs(1);
    assert!(!third.is_before_out(0, &first));
    let mut older = first;
    older.run = 77;
    assert!(third.is_before_out(0, &older));
}

/// By force the second member was used, while the third one had begun to come in beside the first.
#[test]
fn a_member_that_others_have_begun_to_take_in_is_of_others() {
    let first = table(4, &[IN, IN, Standing::Out { since: 3, is_whole: false }]);
    let mut theirs = first.clone();
    theirs.begin_run(2, 0..3);
    (theirs.generation, theirs.members[1].standing) = (6, Standing::Out { since: 6, is_whole: false });
    let mut forced = first.clone();
    forced.begin_run(9, 1..2);
    (forced.generation, forced.members[0].standing) = (5, Standing::Out { since: 5, is_whole: false });
    let label = Label { own: 2, table: theirs };
    assert!(is_of_others(&forced, 2, &label) && !is_apart(&forced, 2, &label));
    // One that has stayed out since before is not.
    assert!(!is_of_others(&forced, 2, &Label { own: 2, table: first }));
}

/// Its label is of a change that came to nothing, and those that know that know nothing else of that time, either.
#[test]
fn a_former_member_does_not_say_that_its_successors_do_not_count() {
    let mut known = table(4, &[IN, IN]);
    known.begin_run(2, 0..2);
    known.generation = 5;
    let mut begun = known.clone();
    (begun.generation, begun.members[0].standing) = (6, OUT);
    // The next host goes on with the other one, and then others take the places of both.
    let mut next = known;
    next.begin_run(3, 1..2);
    next.generation = 9;
    next.put_new(0, [9; 16], "place1".to_owned());
    next.members[0].standing = IN;
    next.put_new(1, [8; 16], "place2".to_owned());
    assert!(next.rules_out(&begun) && !begun.rules_out(&next));
    let found = find("a", &labels(&[(0, begun), (0, next.clone())])).unwrap();
    assert_eq!(found.table, next);
}

/// It was used by force, and those that went on without it have another one in its place, of which it knows nothing.
#[test]
fn what_is_found_of_a_former_member_says_nothing_of_who_has_its_place_now() {
    let mut known = table(4, &[IN, IN]);
    known.begin_run(2, 0..2);
    known.generation = 5;
    let mut went_on = known.clone();
    went_on.generation = 7;
    went_on.put_new(1, [9; 16], "place3".to_owned());
    (went_on.generation, went_on.members[1].standing) = (8, IN);
    let mut forced = known;
    forced.begin_run(3, 1..2);
    (forced.generation, forced.members[0].standing) = (6, OUT);
    assert!(!forced.rules_out(&went_on) && !went_on.rules_out(&forced));
    let found = find("a", &labels(&[(1, forced), (0, went_on.clone()), (1, went_on)]));
    assert!(matches!(found, Err(ArrayError::Split { .. })), "{found:?}");
}

#[test]
fn copies_of_members_other_arrays_and_nothing_are_told() {
    let both = table(4, &[IN, IN]);
    let twice = find("a", &labels(&[(0, both.clone()), (0, both.clone())]));
    assert!(matches!(twice, Err(ArrayError::Twice { number: 1, .. })));
    assert!(matches!(find("b", &labels(&[(0, both.clone())])), Err(ArrayError::Unknown { .. })));
    let other = Table { array: [8; 16], ..both.clone() };
    assert!(matches!(find("a", &labels(&[(0, both.clone()), (0, other)])), Err(ArrayError::Ambiguous { .. })));
    // The volume whose place another one has taken.
    let mut replaced = table(6, &[IN, IN]);
    replaced.members[1].id = [9; 16];
    let found = find("a", &labels(&[(1, both), (0, replaced)])).unwrap();
    assert_eq!(found.members, [Some(1), None]);
}

#[test]
fn a_part_without_any_member_is_missing_also_by_force() {
    let mut chain = table(4, &[IN, IN]);
    chain.copies = 1;
    let found = find("a", &labels(&[(1, chain)])).unwrap();
    assert!(matches!(found.check(), Err(ArrayError::Incomplete { missing }) if missing == "place1"));
}
