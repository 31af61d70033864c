//! Stores are looked at side by side, each for so long at the most: one whose server never answers keeps no other one.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_array::{ArrayError, Candidate, Label};
use sanwire_store::kind::Place;
use sanwire_store::{Store, StoreSpec};

use super::members::{drive, member_spec, place};
use super::purpose::Opening;

/// How long a store on another server may take to be opened, and to show its label.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(20);
/// So many are looked at at once.
const AT_ONCE_MAX: usize = 32;

/// A store that may be a member.
pub(super) struct Look {
    pub(super) candidate: Candidate,
    /// What stands on it, if it could be read.
    pub(super) label: Option<Label>,
}

/// What a look has opened so far: who waits no longer gives it up, so that the look ends.
#[derive(Clone, Default)]
pub(super) struct Handle(Arc<Mutex<Opened>>);

#[derive(Default)]
struct Opened {
    store: Option<Arc<dyn Store>>,
    is_given_up: bool,
}

impl Handle {
    fn opened(&self, store: &Arc<dyn Store>) {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        opened.store = Some(Arc::clone(store));
        if opened.is_given_up {
            store.abandon();
        }
    }

    fn give_up(&self) {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        opened.is_given_up = true;
        opened.store.take().into_iter().for_each(|store| store.abandon());
    }
}

/// Opens these stores, and reads their labels. `None` for those that were not begun before `end`.
pub(super) fn look_at(texts: &[String], opening: Opening, end: Option<Instant>) -> Vec<Option<Result<Look, String>>> {
    let spec = |text: &String| match opening.purpose.refusal(text) {
        Some(why) => Err(why),
        None => member_spec(text, opening).map_err(|error| error.to_string()),
    };
    let specs = texts.iter().map(|text| (text.clone(), spec(text)));
    side_by_side(
        specs.collect(),
        LOOK_MAX,
        end,
        |(_, spec)| is_elsewhere(spec),
        |(text, spec), handle| {
            let spec = spec?;
            let store = spec.open().map_err(|error| error.to_string())?;
            handle.opened(&store);
            let candidate = Candidate { place: place(&text, &spec), store };
            let label = match candidate.label(&mut drive) {
                // It is one all the same: nobody is to take this for a store that is none's.
                Err(error @ ArrayError::Illegible { .. }) => return Err(error.to_string()),
                label => label.ok().flatten(),
            };
            Ok(Look { candidate, label })
        },
    )
}

/// What is here is waited for: a file may be made before it is there, and no server keeps us.
fn is_elsewhere(spec: &Result<StoreSpec, String>) -> bool {
    spec.as_ref().is_ok_and(|spec| matches!(spec.backing.place(), Place::Elsewhere(_)))
}

/// Does a work for each of these, many at once, and waits for none that is `limited` for longer than `patience`. `None` for those that
/// were not begun before `end`.
pub(super) fn side_by_side<T: Clone + Send + 'static, R: Send + 'static>(
    inputs: Vec<T>,
    patience: Duration,
    end: Option<Instant>,
    is_limited: impl Fn(&T) -> bool,
    work: impl Fn(T, Handle) -> Result<R, String> + Clone + Send + 'static,
) -> Vec<Option<Result<R, String>>> {
    let mut results: Vec<_> = inputs.iter().map(|_| None).collect();
    let (tell, told) = mpsc::channel();
    let mut next = inputs.into_iter().enumerate();
    let mut running = Vec::<(usize, Option<Instant>, Handle)>::new();
    loop {
        while running.len() < AT_ONCE_MAX
            && end.is_none_or(|end| Instant::now() < end)
            && let Some((number, input)) = next.next()
        {
            let until = is_limited(&input).then(|| Instant::now() + patience);
            let (work, tell, handle) = (work.clone(), tell.clone(), Handle::default());
            running.push((number, until, handle.clone()));
            let doing = move || _ = tell.send((number, work(input, handle)));
            if let Err(error) = thread::Builder::new().name("look".to_owned()).spawn(doing) {
                running.pop();
                results[number] = Some(Err(error.to_string()));
            }
        }
        if running.is_empty() {
            return results;
        }
        match wait(&told, running.iter().filter_map(|(_, until, _)| *until).min()) {
            Some((number, result)) => {
                // One that was given up is told of already.
                if let Some(at) = running.iter().position(|(of, ..)| *of == number) {
                    running.swap_remove(at);
                    results[number] = Some(result);
                }
            }
            None => running.retain(|(number, until, handle)| {
                let is_over = until.is_some_and(|until| until <= Instant::now());
                if is_over {
                    handle.give_up();
                    results[*number] = Some(Err(format!("it has not answered within {patience:?}")));
                }
                !is_over
            }),
        }
    }
}

/// What is told next; `None`: nothing before that. Who waits keeps a sender.
fn wait<T>(told: &mpsc::Receiver<T>, until: Option<Instant>) -> Option<T> {
    match until {
        None => told.recv().ok(),
        Some(until) => told.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_answers_keeps_nobody_and_is_said() {
        let (_silent, heard) = mpsc::channel::<()>();
        let heard = Arc::new(Mutex::new(heard));
        let work = move |number: usize, _| match number {
            0 => heard.lock().unwrap().recv().map(|()| 0).map_err(|error| error.to_string()),
            1 => Err("it has said no".to_owned()),
            // It is not limited.
            2 => {
                thread::sleep(Duration::from_millis(2500));
                Ok(2)
            }
            number => Ok(number),
        };
        let inputs = (0..2 * AT_ONCE_MAX).collect();
        let results = side_by_side(inputs, Duration::from_secs(2), None, |number| *number != 2, work);
        let [silent, refused, others @ ..] = &results[..] else { panic!("{results:?}") };
        let is_error = |result: &Option<Result<usize, String>>, said: &str| {
            result.as_ref().unwrap().as_ref().is_err_and(|error| error.contains(said))
        };
        assert!(is_error(silent, "not answered within 2s"), "{silent:?}");
        assert!(is_error(refused, "it has said no"), "{refused:?}");
        assert!(others.iter().zip(2..).all(|(result, number)| *result == Some(Ok(number))), "{others:?}");
    }

    #[test]
    fn what_there_is_no_time_for_is_not_begun() {
        let results = side_by_side(vec![1, 2], LOOK_MAX, Some(Instant::now()), |_| true, |number, _| Ok(number));
        assert_eq!(results, [None, None]);
    }
}
