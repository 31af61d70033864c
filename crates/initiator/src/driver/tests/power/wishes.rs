//! Clients and servers that want something else of their connections while these are at work, lost and found again.

use sanwire_core::Protection;
use sanwire_sim::hyperscsi::terms::Change;

use super::*;
use crate::driver::OptionChanges;
use crate::session::DesiredOptions;

/// The shortest is less than what is under way.
const TRANSFERS_MAX_BYTES: [u32; 3] = [4096, 12_288, 64 << 10];

/// Under each all is done in time.
const CAPS: [u64; 2] = [1_000_000, 20_000_000];

/// So long after the last wish it holds, whatever there is to agree on with the server.
const AGREED_WITHIN: Duration = Duration::from_secs(20);

/// Wants something else of the connection.
pub(super) fn wish(changes: &OptionChanges, random: &mut Random) -> Outcome<()> {
    let wishes = DesiredOptions {
        transfer_max_bytes: random.chance(500_000).then(|| random.choose(&TRANSFERS_MAX_BYTES)),
        rate_cap_bytes_per_second: random.chance(500_000).then(|| random.choose(&CAPS)),
        medium_lock: random.chance(500_000),
        ..DesiredOptions::default()
    };
    changes.wish(wishes, random.choose(&Protection::ALL)).map_err(|error| error.to_string())
}

/// The last wish comes to hold, and the volumes tell so.
pub(super) fn hold_in_the_end<W: DrivenWire>(
    driver: &mut Driver,
    user: &User<'_, W>,
    wake_at: &Mutex<Option<Instant>>,
) -> Outcome<()> {
    let wanted = {
        let mut random = user.random.borrow_mut();
        let (bytes, cap) = (random.choose(&TRANSFERS_MAX_BYTES), random.choose(&CAPS));
        DesiredOptions {
            transfer_max_bytes: Some(bytes),
            rate_cap_bytes_per_second: Some(cap),
            ..DesiredOptions::default()
        }
    };
    user.wishes.wish(wanted.clone(), Protection::Hash).map_err(|error| error.to_string())?;
    let until = driver.session.now() + AGREED_WITHIN;
    serve_until(driver, wake_at, until);
    for volume in &user.volumes {
        let info = volume.info();
        let is_short = wanted.transfer_max_bytes.is_some_and(|most| info.transfer_max_bytes <= most);
        let is_slow = info.rate_cap_bytes_per_second.is_some_and(|cap| Some(cap) <= wanted.rate_cap_bytes_per_second);
        if !is_short || !is_slow || info.protection < Some(Protection::Hash) {
            return Err(format!("{wanted:?} was wanted, and its volume has {info:?}"));
        }
    }
    Ok(())
}

/// The server wants something else now and then, too.
fn changes(plan: &mut Plan, random: &mut Random) {
    let life_us = plan.healed_after.as_micros() as u64;
    for _ in 0..random.range(1..=8) {
        let client = random.range(0..=plan.clients as u64 - 1) as usize;
        let change = Change::of_either_end(random);
        plan.faults.push((random.micros(0..=life_us), Fault::Wire(LinkFault::Change { client, change })));
    }
}

#[test]
fn what_a_flush_says_is_true_while_the_options_of_connections_change() {
    let seen = Seen::default();
    run_seeds("-p sanwire-initiator while_the_options_of_connections_change", 100, |seed| {
        let random = &mut plan_random(98, seed);
        let (mut plan, habits) = any_plan(random);
        plan.blocks = 64;
        ends(&mut plan, random, &[Fault::LosePower, Fault::Kill, Fault::ShutDown]);
        changes(&mut plan, random);
        let wishes_per_million = random.choose(&[20_000, 200_000]);
        live(plan, &Habits { blocks_max: 32, wishes_per_million, ..habits }, &seen, seed)
    });
    let cut = seen.cut.into_inner();
    assert!(cut > 0 || std::env::var_os("SANWIRE_SEED").is_some());
}
