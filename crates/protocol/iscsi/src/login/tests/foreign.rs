//! Initiators of others: what they say, and what they take for a failure.

use super::*;

#[test]
fn burst_lengths_that_initiators_offer_by_default_are_what_they_hear() {
    for offer in ["16776192", "16777215", "262144", "512"] {
        let mut server = server_with_seed(1);
        let text = format!("{}MaxBurstLength={offer}\0FirstBurstLength=262144\0", names());
        ask(&mut server, &OneTarget::default(), &request(1, Some(3)), &text);
        let admitted = admitted(&mut server);
        let answer = String::from_utf8(admitted.text).unwrap();
        assert!(answer.contains(&format!("MaxBurstLength={offer}\0")), "{answer}");
        assert_eq!(admitted.session.max_burst_bytes.to_string(), offer);
    }
}

/// As iscsi-client-rs logs in.
#[test]
fn an_initiator_may_name_its_method_in_the_operational_stage_where_nobody_must_show_who_it_is() {
    for method in ["None", "CHAP,None"] {
        let text = format!("{}AuthMethod={method}\0", names());
        let mut server = server_with_seed(1);
        ask(&mut server, &OneTarget::default(), &request(1, Some(3)), &text);
        let admitted = admitted(&mut server);
        assert!(String::from_utf8(admitted.text).unwrap().contains("AuthMethod=NotUnderstood\0"));
        assert_eq!(admitted.user, None);
        let mut directory = OneTarget::default();
        let secret = crate::chap::ChapSecret::new(b"the secret of a user".to_vec()).unwrap();
        directory.entry.authentication.users = vec![Credential { name: "user".to_owned(), secret }];
        assert_eq!(status_of(&directory, &request(1, Some(3)), &text), 0x0201, "where one must");
    }
    let twice = format!("{}AuthMethod=None\0AuthMethod=None\0", names());
    assert_eq!(status_of(&OneTarget::default(), &request(1, Some(3)), &twice), 0x0200);
    assert_eq!(status_of(&OneTarget::default(), &request(1, Some(3)), &(names() + "CHAP_A=5\0")), 0x0200);
}

/// What uiscsi offers: it takes any other answer than a value for a failure.
#[test]
fn keys_without_meaning_in_discovery_and_on_further_connections_are_answered_with_values() {
    let keys = "MaxConnections=4\0InitialR2T=No\0ImmediateData=Yes\0TaskReporting=RFC3720\0DefaultTime2Wait=3\0";
    let answered = |text: String, tsih: u16| {
        let mut server = server_with_seed(1);
        let request = LoginRequest { tsih, connection: 1, ..request(1, Some(3)) };
        ask(&mut server, &OneTarget::default(), &request, &text);
        let admitted = admitted(&mut server);
        (String::from_utf8(admitted.text).unwrap(), admitted.session.max_connections)
    };
    let (discovery, connections) = answered(format!("InitiatorName={INITIATOR}\0SessionType=Discovery\0{keys}"), 0);
    let expected = "InitialR2T=No\0ImmediateData=Yes\0TaskReporting=RFC3720\0DefaultTime2Wait=3\0";
    assert!(discovery.contains(&format!("MaxConnections=1\0{expected}")), "{discovery}");
    assert_eq!(connections, 1, "a discovery session has one");
    let (further, _) = answered(names() + keys, 0x4711);
    assert!(further.contains(&format!("MaxConnections=4\0{expected}")), "{further}");
}

/// Linux' target echoes what it is offered, and has buffers of 8 KiB.
#[test]
fn a_target_of_iser_that_agrees_to_any_length_is_sent_no_more_than_its_buffers_take() {
    let config = config();
    let mut client = ClientLogin::new(&LoginPlan { is_iser: true, ..plan(&config) });
    let (request, _) = client.poll_transmit().unwrap();
    let answer = |request: &LoginRequest| LoginResponse {
        transits: true,
        current_stage: request.current_stage,
        next_stage: request.next_stage,
        task_tag: request.task_tag,
        tsih: 1,
        ..LoginResponse::default()
    };
    assert_eq!(client.handle(&answer(&request), b"AuthMethod=None\0"), None);
    let (request, offered) = client.poll_transmit().unwrap();
    // Its own terms stand in front of what it echoes.
    let offered = String::from_utf8(offered).unwrap();
    let echoed: Vec<&str> = offered.split_terminator('\0').filter(|pair| pair.contains("RecvData")).collect();
    let text = format!("RDMAExtensions=Yes\0{}\0", echoed.join("\0"));
    let admission = client.handle(&answer(&request), text.as_bytes()).unwrap().unwrap();
    assert!(admission.connection.send_data_max_bytes <= 8192, "{offered}");
}
