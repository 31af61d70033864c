//! Contenders in turns: one round measures each of them once, so that the machine's drift meets all.

use anyhow::Result;

use crate::run::Settings;
use crate::sample::{Row, Sample};
use crate::servers::check_interrupted;

/// What is measured together, and its rows without samples.
#[derive(Debug)]
pub(crate) struct Turn<J> {
    pub(crate) rows: Vec<Row>,
    pub(crate) job: J,
}

/// Measures each row once in every round; those that are not wanted or not there have no row.
///
/// `measure` measures one row; of a turn's rows they are measured one after the other between `begin` and the drop of what it
/// gives, which is nothing when the contender is not there.
///
/// # Errors
/// When the run was interrupted.
pub(crate) fn take_turns<J, B>(
    settings: &Settings,
    title: &str,
    mut turns: Vec<Turn<J>>,
    begin: impl Fn(&J) -> Result<Option<B>>,
    measure: impl Fn(&J, &B, &Row) -> Result<Option<Sample>>,
) -> Result<Vec<Row>> {
    for turn in &mut turns {
        turn.rows.retain(|row| settings.is_wanted(row));
    }
    turns.retain(|turn| !turn.rows.is_empty());
    for round in 1..=settings.rounds {
        for Turn { rows, job } in &mut turns {
            check_interrupted(&settings.interrupted)?;
            let contender = rows.first().map_or_else(String::new, |row| row.contender.clone());
            let begun = match begin(job) {
                Ok(Some(begun)) => begun,
                Ok(None) => continue,
                Err(error) => {
                    eprintln!("sanwire-bench: {contender}: {error:#}");
                    continue;
                }
            };
            for row in rows {
                check_interrupted(&settings.interrupted)?;
                eprintln!("{title} round {round}/{}: {contender}, {}", settings.rounds, row.load);
                match measure(job, &begun, row) {
                    Ok(sample) => row.samples.extend(sample),
                    // One contender's failure is a row with a round less, not the end of all the others.
                    Err(error) => eprintln!("sanwire-bench: {contender}, {}: {error:#}", row.load),
                }
            }
        }
    }
    Ok(turns.into_iter().flat_map(|turn| turn.rows).filter(|row| !row.samples.is_empty()).collect())
}

/// [`take_turns`] with jobs of one row that need no beginning.
///
/// # Errors
/// As there.
pub(crate) fn take_single_turns<J>(
    settings: &Settings,
    title: &str,
    turns: Vec<(Row, J)>,
    measure: impl Fn(&J) -> Result<Option<Sample>>,
) -> Result<Vec<Row>> {
    let turns = turns.into_iter().map(|(row, job)| Turn { rows: vec![row], job }).collect();
    take_turns(settings, title, turns, |_| Ok(Some(())), |job, (), _| measure(job))
}
