use super::*;

/// Two servers with two devices each.
const GOOD: &str = r#"{"version": "1.0", "status": "completed", "server_count": "2", "server_list": [
  {"server_id": "A", "host_ip": "10.0.0.1", "device": [
    {"device_id": "4", "device_ip": "10.1.0.1", "rank_id": "0"},
    {"device_id": "5", "device_ip": "10.1.0.2", "rank_id": "1"}]},
  {"server_id": "B", "host_ip": "10.0.0.2", "device": [
    {"device_id": "6", "device_ip": "10.1.0.3", "rank_id": "3"},
    {"device_id": "7", "device_ip": "10.1.0.4", "rank_id": "2"}]}]}"#;

/// The mistake in the good table after replacing `from` by `to`.
fn mistake_after(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from} appears once");
    let error = RankTable::parse(&GOOD.replace(from, to)).expect_err("a mistake");
    error.to_string().replacen("rank table \"\": ", "", 1)
}

#[test]
fn a_good_table_says_where_each_rank_is() {
    let table = RankTable::parse(GOOD).unwrap();
    let places: Vec<(usize, u32)> = table
        .ranks()
        .iter()
        .map(|r| (r.server, r.device_id))
        .collect();
    assert_eq!(places, [(0, 4), (0, 5), (1, 7), (1, 6)]);
    assert_eq!(table.master_host().unwrap(), "10.0.0.1");
}

#[test]
fn one_server_needs_no_address() {
    let table = RankTable::parse(
        r#"{"version":"1.0","status":"completed","server_count":"1","server_list":[{"server_id":
        "box0","device":[{"device_id":"0","rank_id":"0"},{"device_id":"1","rank_id":"1"}]}]}"#,
    )
    .unwrap();
    assert_eq!(table.ranks().len(), 2);
    assert_eq!(table.master_host().unwrap(), "127.0.0.1");
}

#[test]
fn every_mistake_is_named_by_entry_field_and_value() {
    for (from, to, expected) in [
        (
            r#""completed""#,
            r#""initializing""#,
            r#"table.status is "initializing": expected "completed""#,
        ),
        (
            r#""version": "1.0""#,
            r#""version": "2""#,
            r#"table.version is "2": expected "1.0" or "1.2""#,
        ),
        (
            r#""version": "1.0", "#,
            "",
            r#"table.version is missing: expected "1.0" or "1.2""#,
        ),
        (
            r#""server_count": "2""#,
            r#""server_count": "3""#,
            r#"table.server_count is "3": expected the number of entries, "2""#,
        ),
        (
            r#""server_count": "2""#,
            r#""server_count": 2"#,
            r#"table.server_count is 2: expected the number of entries, "2", as a JSON string"#,
        ),
        (
            r#""rank_id": "1""#,
            r#""rank_id": "0""#,
            "server_list[0].device[1].rank_id is \"0\": expected a value of its own; \
             server_list[0].device[0] has the same",
        ),
        (
            r#""rank_id": "3""#,
            r#""rank_id": "4""#,
            "server_list[1].device[0].rank_id is \"4\": expected the ranks of one server to be \
             contiguous, here 2 to 3",
        ),
        (
            r#""rank_id": "0""#,
            r#""rank_id": """#,
            "server_list[0].device[0].rank_id is \"\": expected the number of a rank, from 0, as a \
             JSON string",
        ),
        (
            r#""rank_id": "0""#,
            r#""rank_id": "-1""#,
            "server_list[0].device[0].rank_id is \"-1\": expected the number of a rank, from 0",
        ),
        (
            r#""10.1.0.2""#,
            r#""10.1.0.1""#,
            "server_list[0].device[1].device_ip is \"10.1.0.1\": expected a value of its own; \
             server_list[0].device[0] has the same",
        ),
        (
            r#""10.1.0.3""#,
            r#""10.1.0.300""#,
            "server_list[1].device[0].device_ip is \"10.1.0.300\": expected an IP address",
        ),
        (
            r#""device_id": "5""#,
            r#""device_id": "4""#,
            "server_list[0].device[1].device_id is \"4\": expected a value of its own; \
             server_list[0].device[0] has the same",
        ),
        (
            r#""server_id": "B""#,
            r#""server_id": "A""#,
            "server_list[1].server_id is \"A\": expected a value of its own; server_list[0] has the \
             same",
        ),
        (
            r#""device_id": "5","#,
            r#""device_id": "5", "device_port": "0","#,
            "server_list[0].device[1].device_port is \"0\": expected a port from 1 to 65535",
        ),
        (
            r#""version": "1.0""#,
            r#""version": "1.2""#,
            "server_list[0].device[0].super_device_id is missing: expected the number of a device in \
             its super node (version 1.2)",
        ),
    ] {
        assert_eq!(mistake_after(from, to), expected);
    }
}

#[test]
fn ranks_of_one_server_must_not_be_interleaved() {
    let table = GOOD
        .replace(r#""rank_id": "1""#, r#""rank_id": "x""#)
        .replace(r#""rank_id": "2""#, r#""rank_id": "1""#)
        .replace(r#""rank_id": "x""#, r#""rank_id": "2""#);
    assert_eq!(
        RankTable::parse(&table).unwrap_err().to_string(),
        "rank table \"\": server_list[0].device[1].rank_id is \"2\": expected the ranks of one server \
         to be contiguous, here 0 to 1"
    );
}

#[test]
fn ranks_start_at_zero() {
    let table = GOOD
        .replace(r#""rank_id": "0""#, r#""rank_id": "4""#)
        .replace(r#""rank_id": "1""#, r#""rank_id": "5""#);
    assert_eq!(
        RankTable::parse(&table).unwrap_err().to_string(),
        "rank table \"\": server_list[0].device[1].rank_id is \"5\": expected ranks 0 to 3; rank 0 is \
         missing"
    );
}

#[test]
fn several_servers_need_the_address_of_rank_0() {
    let table = RankTable::parse(&GOOD.replace(r#""host_ip": "10.0.0.1", "#, "")).unwrap();
    let error = table.master_host().unwrap_err().to_string();
    assert!(
        error.contains("server_list[0].host_ip is missing"),
        "{error}"
    );
    let named = GOOD
        .replace(r#""host_ip": "10.0.0.1", "#, "")
        .replace(r#""server_id": "A""#, r#""server_id": "10.0.0.9""#);
    let table = RankTable::parse(&named).unwrap();
    assert_eq!(table.master_host().unwrap(), "10.0.0.9");
}

#[test]
fn a_super_node_lists_servers_of_the_table() {
    let version_2 = GOOD
        .replace(r#""version": "1.0""#, r#""version": "1.2""#)
        .replace(r#""device_id""#, r#""super_device_id": "0", "device_id""#);
    let pods = r#""super_pod_list": [{"super_pod_id": "0", "server_list": [{"server_id": "A"},
        {"server_id": "C"}]}], "server_list": [
  {"server_id": "A""#;
    let table = version_2.replace("\"server_list\": [\n  {\"server_id\": \"A\"", pods);
    assert_eq!(
        RankTable::parse(&table).unwrap_err().to_string(),
        "rank table \"\": super_pod_list[0].server_list[1].server_id is \"C\": expected the server_id \
         of an entry of server_list"
    );
    assert!(RankTable::parse(&table.replace(r#""server_id": "C""#, r#""server_id": "B""#)).is_ok());
}

#[test]
fn the_older_form_numbers_ranks_in_order() {
    let text = r#"{"status": "completed", "group_count": "1", "group_list": [{"group_name": "g",
      "instance_count": "2", "device_count": "3", "instance_list": [
      {"pod_name": "p0", "server_id": "10.0.0.1", "devices": [
        {"device_id": "3", "device_ip": "10.1.0.1"}, {"device_id": "1", "device_ip": "10.1.0.2"}]},
      {"pod_name": "p1", "server_id": "10.0.0.2", "devices": [
        {"device_id": "0", "device_ip": "10.1.0.3"}]}]}]}"#;
    let table = RankTable::parse(text).unwrap();
    let places: Vec<(usize, u32)> = table
        .ranks()
        .iter()
        .map(|r| (r.server, r.device_id))
        .collect();
    assert_eq!(places, [(0, 3), (0, 1), (1, 0)]);
    assert_eq!(table.master_host().unwrap(), "10.0.0.1");
    let wrong = text.replace(r#""device_count": "3""#, r#""device_count": "2""#);
    assert_eq!(
        RankTable::parse(&wrong).unwrap_err().to_string(),
        "rank table \"\": group_list[0].device_count is \"2\": expected the number of entries, \"3\""
    );
}

#[test]
fn a_file_that_is_missing_or_no_json_is_named() {
    let missing = RankTable::read(Path::new("/nowhere/table.json")).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "rank table \"/nowhere/table.json\" (RANK_TABLE_FILE) cannot be read"
    );
    let folder = RankTable::read(Path::new("/")).unwrap_err();
    assert_eq!(
        folder.to_string(),
        "rank table \"/\" (RANK_TABLE_FILE) cannot be read"
    );
    let comment = RankTable::parse("{ // ranks\n}").unwrap_err();
    assert_eq!(
        comment.to_string(),
        "rank table \"\" is not JSON (comments are not allowed in it)"
    );
    for text in ["[]", "1", "null"] {
        let error = RankTable::parse(text).unwrap_err().to_string();
        assert!(error.ends_with(": expected an object"), "{error}");
    }
}
