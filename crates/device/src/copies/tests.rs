use super::*;

/// So many copies that are kept of somebody.
fn known(copies: &Copies, nexus: u64) -> usize {
    (0..=255).filter(|id| copies.is_known(NexusId(nexus), *id)).count()
}

#[test]
fn what_one_asks_for_does_not_push_out_what_another_one_may_ask_for() {
    let (copies, bell) = (Arc::new(Copies::default()), Arc::new(Bell::default()));
    let begin = |nexus: u64, id: u32| copies.begin(NexusId(nexus), id, AskedCopy::EXTENDED_COPY, &bell);
    let run = |nexus: u64, id: u32| begin(nexus, id).unwrap().end(None);
    let known = |nexuses: &[u64]| nexuses.iter().map(|nexus| known(&copies, *nexus)).collect::<Vec<_>>();
    run(1, 0);
    (0..200).for_each(|id| run(2, id));
    assert_eq!(known(&[1, 2]), [1, COPIES_OF_NEXUS_MAX.into()], "the first one has not read it yet");
    (0..200).for_each(|id| run(3, id));
    assert_eq!(known(&[1, 2, 3]), [1, 32, 31], "all room");
    // One who comes then has room for one at least, where one has most.
    (0..200).for_each(|id| run(4, id));
    assert_eq!(known(&[1, 2, 3, 4]), [1, 31, 31, 1]);
    // What is under way cannot be pushed out: nobody has more so than others.
    let under_way: Vec<_> = (0..40).filter_map(|id| begin(5, id).ok()).collect();
    assert_eq!((under_way.len(), known(&[1, 2, 3, 4, 5])), (21, vec![1, 20, 21, 1, 21]));
    assert_eq!(
        begin(5, 40).map(drop),
        Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::INSUFFICIENT_RESOURCES))
    );
    copies.forget(NexusId(5));
    assert!(under_way.iter().all(|ticket| ticket.check().is_err()), "nobody waits for it any more");
    assert_eq!(known(&[1, 2, 3, 4, 5]), [1, 20, 21, 1, 0]);
}
