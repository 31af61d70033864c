use super::*;

const TEN: Quota = Quota::per_second(Holder::Address, "a", 10, 4);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

#[test]
fn a_pace_gives_its_burst_at_once_and_then_its_rate() {
    let mut pace = Pace::new(&TEN);
    assert_eq!((0..10).filter(|_| pace.take(at(5000))).count(), 4);
    assert!(!pace.take(at(5099)) && pace.take(at(5100)) && !pace.take(at(5100)));
    let taken = (5200..6200).filter(|ms| pace.take(at(*ms))).count();
    assert!((10..=11).contains(&taken), "{taken} in a second");
    assert_eq!((pace.left(at(6199)), pace.left(at(60_000))), (0, 4));
    assert!(!pace.is_full(at(6200)) && pace.is_full(at(60_000)));
}

#[test]
fn what_is_kept_in_reserve_is_for_others() {
    let mut pace = Pace::new(&TEN);
    assert_eq!((0..10).filter(|_| pace.take_above(3, at(1))).count(), 1);
    assert_eq!((0..10).filter(|_| pace.take_above(1, at(1))).count(), 2);
    assert!(pace.take(at(1)) && !pace.take(at(1)));
}

#[test]
fn an_account_admits_to_its_limit_and_counts_the_rest() {
    const THREE: Quota = Quota::held(Holder::Client, "b", 3);
    let mut account = Account::new(&THREE);
    assert!(account.admits(0, 1) && account.admits(2, 1) && !account.admits(3, 1) && !account.admits(u64::MAX, 1));
    assert!(account.has_room(2, 1) && !account.has_room(2, 2));
    let mut usage = account.usage();
    assert_eq!((usage.most, usage.refused), (Some(3), 2));
    usage.add(&Usage { most: Some(2), ..Usage::refused(&THREE, 5) });
    assert_eq!((usage.most, usage.refused), (Some(3), 7));
    let mut account = Account::within(&THREE, 2);
    assert!(account.admits(1, 1) && !account.admits(2, 1) && !account.admits_up_to(1, 1, 1));
    assert_eq!((account.usage().limit, Account::within(&THREE, 9).usage().limit), (2, 3));
}

/// The first three columns of the table of quotas, as they stand in docs/security.md.
fn documented() -> Vec<String> {
    let page = include_str!("../../../../docs/security.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Quotas\n")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.split('|').skip(1).take(3).map(str::trim).collect::<Vec<_>>().join(" | ")).collect()
}

#[test]
fn the_table_of_the_documents_is_that_of_the_program() {
    let known: Vec<String> =
        ALL.iter().map(|quota| format!("{} | {} | {quota}", quota.holder.name(), quota.name)).collect();
    assert_eq!(documented(), known);
}

/// The file and the test in which each limit is reached.
const TESTS: &[(&Quota, &str, &str)] = &[
    (&HANDSHAKES_UNPROVEN, GATE, "a_flood_from_forged_addresses_costs_few_handshakes_and_no_memory"),
    (&GUESSES, THROTTLE, "many_hosts_together_are_not_faster_than_all_may_be"),
    (&LOGINS_OF_STRANGERS, PLACES, "whom_no_rule_may_name_never_takes_the_place_of_who_may_be_named"),
    (&DISCOVERIES_OF_STRANGERS, SHARES, "strangers_have_their_own_number_and_what_is_left_is_free_again"),
    (
        &VISA_NEWCOMERS,
        "server/src/front/visa/tests.rs",
        "those_without_a_session_leave_room_to_those_who_come_from_elsewhere",
    ),
    (&LOGGED_LOGINS, PLACES, "lines_about_logins_are_bounded_and_whoever_asks_hears_how_many_were_left_out"),
    (&LOGGED_OFFENCES, LOGGING, "a_flood_of_lines_is_bounded_and_counted_in_the_next"),
    (&OFFENCES_WAITING, INBOX, "what_is_refused_and_waits_is_bounded_by_its_sort"),
    (&AUDITED_OFFENCES, AUDIT, "strangers_keep_no_client_out_of_the_log_and_neither_keeps_a_manager_out"),
    (
        &HANDSHAKES_OF_NETWORK,
        GATES,
        "a_network_of_many_hosts_begins_more_than_one_host_and_none_of_them_takes_all_of_it",
    ),
    (&GUESSES_OF_NETWORK, THROTTLE, "a_fresh_key_for_each_guess_does_not_make_a_host_faster"),
    (&LOGINS_OF_NETWORK, PLACES, "a_network_of_ipv6_counts_as_one_host"),
    (&SESSIONS_OF_NETWORK, SESSION_PLACES, "the_many_hosts_of_a_network_have_more_places_than_one_host"),
    (&TCP_CONNECTIONS_OF_NETWORK, SHARES, "who_is_alone_may_have_as_many_as_the_quotas_say"),
    (&HANDSHAKES_OF_ADDRESS, GATE, "who_receives_what_is_sent_to_him_begins_no_more_than_an_address_may"),
    (&SESSIONS_OF_ADDRESS, SESSION_PLACES, "keys_without_number_from_one_address_leave_places_for_other_addresses"),
    (&TCP_CONNECTIONS_OF_ADDRESS, SHARES, "who_is_alone_may_have_as_many_as_the_quotas_say"),
    (&MEMORY_OF_CLIENT, "buffer/src/region/tests.rs", "what_a_holder_takes_is_counted_wherever_it_goes"),
    (&SESSIONS_OF_CLIENT, SESSION_PLACES, "one_key_takes_its_own_places_and_no_others"),
    (&SLOTS_OF_CLIENT, SESSION_PLACES, "what_is_remembered_for_a_client_that_is_away_is_bounded"),
    (&TCP_CONNECTIONS_OF_CLIENT, SHARES, "who_is_alone_may_have_as_many_as_the_quotas_say"),
    (&MANAGEMENT_OF_CLIENT, INBOX, "a_client_that_asks_without_waiting_leaves_others_room_to_ask"),
    (
        &CHANGES_OF_OWNER,
        "server/src/manage/jobs/paces.rs",
        "an_owner_that_changes_without_end_is_slowed_down_and_no_other_one",
    ),
    (
        &RENEWALS_OF_OWNER,
        "server/src/manage/jobs/tests.rs",
        "an_owner_renews_more_often_than_it_changes_and_not_without_end",
    ),
    (&COMMANDS_OF_SESSION, MEMORY, "who_has_all_its_commands_under_way_may_have_them_ended"),
    (
        &COMMAND_NUMBERS_OF_SESSION,
        "protocol/hyperscsi/src/server/session/tests.rs",
        "numbers_far_ahead_and_long_settled_are_refused",
    ),
    (
        &INCOMING_OF_SESSION,
        "protocol/hyperscsi/src/server/intake.rs",
        "no_more_requests_come_in_at_once_than_a_session_may_have",
    ),
    (&ANSWERS_OF_SESSION, ANSWERS, "who_says_that_it_has_answers_and_acknowledges_none_is_not_served_without_end"),
    (&ANSWER_BYTES_OF_SESSION, ANSWERS, "long_answers_that_nobody_takes_are_not_made_without_end"),
    (&LENT_BYTES_OF_SESSION, ANSWERS, "who_holds_much_of_a_store_gets_copies_and_is_served"),
    (&ISCSI_COMMANDS_OF_SESSION, ISCSI, "how_many_commands_and_connections_sessions_have_is_counted"),
    (&ISCSI_CONNECTIONS_OF_SESSION, ISCSI, "how_many_commands_and_connections_sessions_have_is_counted"),
    (&ISCSI_EARLY_BYTES, ISCSI, "pings_that_come_early_keep_little_and_are_answered_all_the_same"),
    (&ISCSI_UNSENT_BYTES, ISCSI, "a_connection_with_much_data_to_send_is_not_read_from"),
    (
        &ISCSI_UNSENT_HEAP_BYTES,
        ISCSI,
        "whoever_does_not_read_has_few_answers_waiting_however_many_requests_come_at_once",
    ),
    (&ISCSI_KEPT_BYTES, ISCSI_RECOVERY, "what_is_kept_is_bounded"),
    (&ISCSI_KEPT_HEAP_BYTES, ISCSI, "what_is_kept_for_recovery_is_bounded_outside_the_memory_for_data_too"),
    (&ISCSI_LENT_BYTES, ISCSI_PLACES, "who_has_much_of_a_store_waiting_gets_copies"),
    (&HALF_OPENS_OF_SESSION, HANDSHAKES, "one_session_has_few_handshakes_under_way_on_a_path_however_often_it_begins"),
    (
        &AOE_QUESTIONS_OF_ADDRESS,
        AOE_LIMITS,
        "who_asks_all_targets_again_and_again_and_who_does_it_under_many_names_is_not_answered",
    ),
    (
        &AOE_QUESTIONS,
        AOE_LIMITS,
        "who_asks_all_targets_again_and_again_and_who_does_it_under_many_names_is_not_answered",
    ),
    (&AOE_COMMANDS, AOE, "no_more_is_under_way_than_is_announced_and_nothing_twice"),
    (&AOE_VERIFIES, AOE, "a_verify_reads_no_more_than_a_read_and_few_are_executed_at_once"),
    (&AOE_STATIONS, AOE, "that_settings_are_given_up_is_told_once"),
    (&AOE_BEGINNINGS, AOE, "stations_that_are_made_up_do_not_come_without_end"),
    (&REGISTRATIONS, RESERVATIONS, "who_registers_initiators_without_number_leaves_room_for_others_to_fence_it_off"),
    (
        &DISTURBANCES,
        "initiator/src/driver/tests/hostile.rs",
        "an_honest_client_goes_on_whatever_another_one_does_to_the_unit",
    ),
    (
        &DISTURBANCES_OF_CLIENT,
        "device/src/disturbances.rs",
        "one_client_leaves_resets_and_changes_to_others_in_however_many_sessions",
    ),
    (
        &COLD_RESETS,
        "server/tests/tasks/management.rs",
        "who_resets_a_target_cold_again_and_again_leaves_others_time_to_work",
    ),
    (&LOGGED_STALLS, "device/src/store_retry.rs", "a_store_that_comes_and_goes_fills_no_log"),
    (
        &PROGRAM_FUEL,
        "device/src/tests/derived/budget.rs",
        "a_program_that_spins_has_its_share_of_a_processor_and_others_go_on",
    ),
    (&HANDSHAKES_PROVEN, GATE, "no_number_of_addresses_begins_more_handshakes_than_a_shard_has_time_for"),
    (&HINTS, GATE, "who_repeats_packets_of_a_connection_that_was_hears_no_more_than_a_restart_needs"),
    (&LOOSE_PACKETS, GATE, "answers_to_strangers_that_wait_to_be_sent_are_few"),
    (&GUESSERS, THROTTLE, "what_is_remembered_is_bounded"),
    (&GUESSING_NETWORKS, THROTTLE, "what_is_remembered_is_bounded"),
    (&HALF_OPENS, GATE, "a_flood_of_handshakes_that_nobody_ends_leaves_time_to_who_ends_his"),
    (&SESSIONS, SESSION_PLACES, "a_full_server_ends_no_session_of_another_and_takes_back_those_it_has"),
    (&LOGGED_REFUSALS, LOGGING, "what_strangers_do_leaves_lines_for_what_clients_are_refused"),
    (&LOGGED_SESSIONS, LOGGING, "lines_about_sessions_are_bounded_too"),
    (&LOGINS, PLACES, "half_open_logins_of_few_hosts_push_out_one_another_and_nobody_else"),
    (&TCP_CONNECTIONS, SHARES, "however_many_take_what_they_can_somebody_else_gets_in"),
    (&MANAGEMENT_WAITING, INBOX, "requests_that_wait_are_bounded"),
    (&CHANGES_OF_OWNERS, "server/src/manage/jobs/paces.rs", "all_owners_together_are_slowed_down_too"),
    (&RENEWALS_OF_OWNERS, "server/src/manage/jobs/paces.rs", "all_owners_together_are_slowed_down_too"),
    (&COPIES, COPY_PLACES, "copies_of_owners_are_few_and_leave_places_to_who_manages_the_server"),
    (&COPIES_OF_OWNERS, COPY_PLACES, "copies_of_owners_are_few_and_leave_places_to_who_manages_the_server"),
    (&COPIES_OF_OWNER, COPY_PLACES, "copies_of_owners_are_few_and_leave_places_to_who_manages_the_server"),
    (&ATTEMPTS_WAITING, INBOX, "no_more_wait_than_there_is_room_for"),
    (&REFUSALS_WAITING, INBOX, "what_strangers_do_leaves_room_for_what_clients_are_refused"),
    (&AUDITED_REFUSALS, AUDIT, "strangers_keep_no_client_out_of_the_log_and_neither_keeps_a_manager_out"),
    (&AUDIT_BYTES, AUDIT, "a_log_that_has_become_long_is_put_aside_and_the_oldest_goes"),
];

const ANSWERS: &str = "protocol/hyperscsi/src/server/tests/answers.rs";
const AOE: &str = "protocol/aoe/src/target/server/tests.rs";
const AOE_LIMITS: &str = "protocol/aoe/src/target/limits.rs";
const AUDIT: &str = "server/src/manage/audit/tests.rs";
const COPY_PLACES: &str = "server/src/manage/jobs/places.rs";
const GATE: &str = "protocol/hyperscsi/src/server/tests/strangers.rs";
const GATES: &str = "security/src/gate.rs";
const HANDSHAKES: &str = "protocol/hyperscsi/src/server/tests/handshakes.rs";
const INBOX: &str = "server/src/management_queue.rs";
const ISCSI: &str = "protocol/iscsi/src/server/tests/heap.rs";
const ISCSI_PLACES: &str = "protocol/iscsi/src/server/tests/places.rs";
const ISCSI_RECOVERY: &str = "protocol/iscsi/src/server/tests/recovery.rs";
const LOGGING: &str = "server/src/logging.rs";
const MEMORY: &str = "protocol/hyperscsi/src/server/tests/memory.rs";
const PLACES: &str = "server/src/login_listener/places/tests.rs";
const RESERVATIONS: &str = "device/src/tests/reservation/room.rs";
const SESSION_PLACES: &str = "protocol/hyperscsi/src/server/tests/places.rs";
const SHARES: &str = "server/src/registry/shares.rs";
const THROTTLE: &str = "security/src/throttle.rs";

#[test]
fn each_quota_is_reached_by_a_test() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (quota, file, test) in TESTS {
        let text = std::fs::read_to_string(crates.join(file)).unwrap_or_default();
        assert!(text.contains(&format!("fn {test}()")), "{quota:?}: {test} is not in {file}");
    }
    let has_test = |quota: &Quota| TESTS.iter().any(|(tested, ..)| *tested == quota);
    let unreached: Vec<&Quota> = ALL.iter().copied().filter(|quota| !has_test(quota)).collect();
    assert!(unreached.is_empty(), "{unreached:?}");
}

#[test]
fn each_holder_has_each_quota_once() {
    for (index, quota) in ALL.iter().enumerate() {
        let same = ALL[..index].iter().find(|other| (other.holder, other.name) == (quota.holder, quota.name));
        assert!(same.is_none(), "{quota:?}");
    }
}
