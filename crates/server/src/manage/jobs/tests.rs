use sanwire_core::Principal;

use super::*;
use crate::manage::course::{Ending, Ordered};
use crate::manage::{CopyOrder, DvdEnd};

const BY: Asker = Asker::Signal { signal: "test" };

#[test]
fn jobs_are_told_of_while_they_go_on_and_for_a_while_after() {
    let jobs = Arc::<Jobs>::default();
    let begin = || jobs.begin(&BY, &Request::Status, "thinking");
    let running: Vec<Job> = std::iter::from_fn(begin).collect();
    assert_eq!((running.len(), jobs.list().len()), (RUNNING_MAX, RUNNING_MAX));
    assert!(begin().is_none() && jobs.check(&BY, &Request::Status).is_ok(), "who asks for one more waits for its end");
    assert_eq!(jobs.wait(1, Duration::ZERO).unwrap().progress.as_deref(), Some("thinking"));
    running.into_iter().for_each(|job| job.end(Response::Done(Answer::Changed(vec!["done".into()]))));
    let first = jobs.status(1).unwrap();
    assert_eq!((first.state, first.changed, first.progress), (JobState::Done, vec!["done".into()], None));
    drop(begin().unwrap());
    let failed = jobs.wait(RUNNING_MAX as u64 + 1, Duration::from_secs(60));
    assert_eq!(failed.unwrap().code.as_deref(), Some("defect"), "a job that panics ends as a defect");
    assert_eq!((jobs.status(1), jobs.list().len()), (None, OVER_MAX));
    assert_eq!(jobs.wait(1, Duration::ZERO), None);
}

#[test]
fn copies_take_no_place_of_other_changes_nor_the_other_way_round() {
    let jobs = Arc::<Jobs>::default();
    let copy = Request::InPools { pools: Vec::new(), request: Box::new(Request::CopyOut(CopyOrder::default())) };
    let copies: Vec<Job> = std::iter::from_fn(|| jobs.begin(&BY, &copy, "copying")).collect();
    let others: Vec<Job> = std::iter::from_fn(|| jobs.begin(&BY, &Request::Status, "thinking")).collect();
    assert_eq!((copies.len(), others.len()), (8, RUNNING_MAX));
}

#[test]
fn a_job_that_tells_nothing_is_cancelled_too_as_long_as_it_goes_on() {
    let (jobs, cancellation) = (Arc::<Jobs>::default(), Cancellation::default());
    let job = jobs.begin(&BY, &Request::Status, "comparing").unwrap();
    let id = job.id();
    assert_eq!(jobs.cancel(id), Some(false), "nothing has it end");
    job.set_cancellation(Some(cancellation.clone()));
    assert!(!cancellation.is_cancelled() && jobs.cancel_by_request(id).is_ok() && cancellation.is_cancelled());
    job.end(Response::Done(Answer::Changed(Vec::new())));
    assert!(matches!(jobs.cancel_by_request(id), Err(ManageError::NoCancel(_))), "it is over");
    assert!(matches!(jobs.cancel_by_request(id + 1), Err(ManageError::NoJob(_))));
}

#[test]
fn only_who_asks_for_a_copy_itself_keeps_it_alive() {
    let jobs = Arc::<Jobs>::default();
    let job = jobs.begin(&BY, &Request::CopyOut(CopyOrder::default()), "copying").unwrap();
    let (volume, to, unasked_max) = ("v".to_owned(), Vec::new(), Duration::from_secs(60));
    let protection = sanwire_core::Protection::default();
    let course = Arc::new(Course::new(1, Ordered { volume, to, protection, owner: None, unasked_max }));
    job.set_course(Arc::clone(&course));
    course.age(2 * unasked_max);
    assert_eq!(course.ending(), Some(Ending::Unasked(unasked_max)), "nobody has asked");
    assert!(jobs.wait(job.id(), Duration::ZERO).is_some());
    assert_eq!(course.ending(), None, "it was asked about");
    course.age(2 * unasked_max);
    assert_eq!((jobs.list().len(), jobs.courses().len()), (1, 1));
    assert_eq!(course.ending(), Some(Ending::Unasked(unasked_max)), "who lists all does not mean it");
}

#[test]
fn an_owner_renews_more_often_than_it_changes_and_not_without_end() {
    let jobs = Arc::<Jobs>::default();
    let owner =
        Asker::Client { client: ClientId([1; 16]), address: "10.0.0.1:1".into(), as_owner: Some(Principal::default()) };
    let running: Vec<Job> =
        (0..OF_OWNER_MAX).filter_map(|_| jobs.begin(&owner, &Request::Status, "thinking")).collect();
    let end = |until: &str| Request::SetDvd(DvdEnd { name: "cam".into(), until: Some(until.into()) });
    assert!(jobs.check(&owner, &end("2h")).is_err(), "who has begun with too many changes");
    let renewed = (0..1000).filter(|_| jobs.check(&owner, &end("30s")).is_ok()).count();
    assert!((64..200).contains(&renewed), "{renewed}");
    assert!(jobs.usages().nth(2).unwrap().refused > 0);
    drop(running);
    assert!(jobs.check(&owner, &end("2h")).is_ok(), "changes are counted by themselves");
}

#[test]
fn owners_leave_room_for_who_manages_the_server() {
    let jobs = Arc::<Jobs>::default();
    let owner = |client: u8| Asker::Client {
        client: ClientId([client; 16]),
        address: format!("10.0.0.{client}:1"),
        as_owner: Some(Principal::default()),
    };
    let mut running = Vec::new();
    let change = Request::SetVolume { name: "v".into(), security: None, protected: None, owners: None };
    for client in 0..8 {
        for _ in 0..OF_OWNER_MAX {
            assert!(jobs.check(&owner(client), &change).is_ok());
            running.extend(jobs.begin(&owner(client), &Request::Status, "thinking"));
        }
        assert_eq!(jobs.check(&owner(client), &change).unwrap_err().code, "jobs-too-many", "{client}");
    }
    assert_eq!(jobs.check(&owner(9), &change).unwrap_err().code, "jobs-too-many", "of all of them together");
    let end = Request::RevokeDvd { name: "d".into() };
    assert!(jobs.check(&owner(9), &end).is_ok(), "what ends something is always done");
    assert!(running.len() == OF_OWNERS_MAX && jobs.begin(&BY, &Request::Status, "thinking").is_some());
    running.pop();
    assert!(jobs.check(&owner(9), &change).is_ok());
}
