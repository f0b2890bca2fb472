use super::{write::counts, *};

pub(crate) fn install() -> Install {
    Install {
        namespace: "trestle".to_owned(),
        cluster: "prod".to_owned(),
        image: "trestle:1".to_owned(),
        server: None,
        api_server: None,
        volume: Volume::Claim { size: "1Gi".to_owned(), class: None },
        controller_node: None,
        observe: false,
        agent_flags: Vec::new(),
        services: None,
        runtime: None,
        cni_bin_dir: "/opt/cni/bin".to_owned(),
        cni_conf_dir: "/etc/cni/net.d".to_owned(),
    }
}

/// In place of kube-proxy, with a directory of a node.
pub(crate) fn everything() -> Install {
    Install {
        server: Some("https://10.0.0.1:9381".to_owned()),
        api_server: Some(("10.0.0.1".to_owned(), 6443)),
        volume: Volume::HostPath("/srv/trestle".to_owned()),
        controller_node: Some("node-1".to_owned()),
        observe: true,
        runtime: Some("/run/containerd/containerd.sock".to_owned()),
        services: Some("nftables".to_owned()),
        agent_flags: vec!["--pod-prefix".to_owned(), "10.244.0.0/16".to_owned()],
        ..install()
    }
}

fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |document: &&Value| document["kind"] == kind && document["metadata"]["name"] == name;
    documents.iter().find(is_it).unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

fn words(args: &Value) -> Vec<&str> {
    args.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

#[test]
fn what_would_not_work_is_refused_with_what_to_say() {
    assert_eq!((install().check(), everything().check()), (Ok(()), Ok(())));
    let refused = |change: fn(&mut Install)| {
        let mut install = everything();
        change(&mut install);
        install.check().unwrap_err()
    };
    assert_eq!(refused(|it| it.server = None), InstallFault::Server);
    assert_eq!(refused(|it| it.controller_node = None), InstallFault::Server);
    assert_eq!(refused(|it| it.api_server = None), InstallFault::ApiServer);
    let node = refused(|it| {
        it.services = None;
        it.controller_node = None;
    });
    assert_eq!(node, InstallFault::Node);
    for bad in ["http://10.0.0.1:9381", "https://10.0.0.1", "https://:1", "10.0.0.1:9381", "https://a/b:1"] {
        let install = Install { server: Some(bad.to_owned()), ..everything() };
        assert!(matches!(install.check(), Err(InstallFault::Word(..))), "{bad}");
    }
    for bad in ["kube-system", "default", "", "A", "a_b", "-a"] {
        let install = Install { namespace: bad.to_owned(), ..install() };
        assert!(matches!(install.check(), Err(InstallFault::Word(..))), "{bad}");
    }
}

#[test]
fn agents_have_no_rights_and_the_controller_those_that_it_uses() {
    let all = install().documents();
    let rules = find(&all, "ClusterRole", NAME)["rules"].as_array().unwrap();
    assert_eq!(rules.len(), crate::rbac::rules().len() + 1, "reviews of tokens");
    let role = &find(&all, "Role", NAME)["rules"];
    assert_eq!(
        role,
        &json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [CA], "verbs": ["patch"]}])
    );
    let bound: Vec<_> = all.iter().flat_map(|one| one["subjects"].as_array().into_iter().flatten()).collect();
    assert!(bound.iter().all(|subject| subject["name"] == NAME), "{bound:?}");
    let agent = &find(&all, "DaemonSet", AGENT)["spec"]["template"]["spec"];
    assert_eq!(agent["automountServiceAccountToken"], false);
    let added = &agent["containers"][0]["securityContext"]["capabilities"]["add"];
    assert_eq!(added, &json!(["NET_ADMIN", "SYS_NICE"]));
    assert!(find(&all, "ConfigMap", CA)["data"].is_null(), "it is the controller's to fill");
}

#[test]
fn an_agent_reaches_the_controller_without_what_waits_for_it() {
    for (install, server) in
        [(install(), "https://$(TRESTLE_SERVICE_HOST):9381"), (everything(), "https://10.0.0.1:9381")]
    {
        let all = install.documents();
        let agent = &find(&all, "DaemonSet", AGENT)["spec"]["template"]["spec"];
        let args = words(&agent["containers"][0]["args"]);
        assert!(args.windows(2).any(|pair| pair == ["--server", server]), "{args:?}");
        assert_eq!((&agent["dnsPolicy"], &agent["hostNetwork"]), (&json!("Default"), &json!(true)));
        let controller = &find(&all, "StatefulSet", NAME)["spec"]["template"]["spec"];
        assert_eq!((&controller["dnsPolicy"], &controller["hostNetwork"]), (&json!("Default"), &json!(true)));
        let tolerated = controller["tolerations"].to_string();
        assert!(tolerated.contains("not-ready"), "a node is not ready without its agent: {tolerated}");
    }
}

#[test]
fn what_is_asked_for_is_in_the_documents() {
    let all = everything().documents();
    let agent = &find(&all, "DaemonSet", AGENT)["spec"]["template"]["spec"]["containers"][0];
    let args = words(&agent["args"]);
    for word in ["--observe", "nftables", "--pod-prefix", "10.244.0.0/16"] {
        assert!(args.contains(&word), "{word}: {args:?}");
    }
    let mounts = agent["volumeMounts"].to_string();
    assert!(args.windows(2).any(|pair| pair == ["--cri", "/run/containerd/containerd.sock"]), "{args:?}");
    assert!(
        mounts.contains(r#""mountPath":"/run/containerd""#) && mounts.contains("HostToContainer"),
        "{mounts}"
    );
    let set = &find(&all, "StatefulSet", NAME)["spec"];
    assert!(set["volumeClaimTemplates"].is_null());
    let spec = &set["template"]["spec"];
    assert_eq!(spec["nodeSelector"]["kubernetes.io/hostname"], "node-1");
    assert!(spec["volumes"].to_string().contains("/srv/trestle"));
    let environment = spec["containers"][0]["env"].to_string();
    assert!(
        environment.contains(r#"{"name":"KUBERNETES_SERVICE_HOST","value":"10.0.0.1"}"#),
        "{environment}"
    );
    let config: Value = serde_json::from_str(
        find(&all, "ConfigMap", "trestle-config")["data"]["trestle.yaml"].as_str().unwrap(),
    )
    .unwrap();
    assert_eq!(config["names"], json!(["10.0.0.1", "trestle.trestle.svc"]));
    assert_eq!(config["kubernetes"][0], json!({"name": "prod", "publish_ca": "trestle/trestle-ca"}));
}

#[test]
fn where_objects_are_and_whether_they_are_everywhere() {
    let paths: Vec<_> = install().documents().iter().map(write::path).collect();
    for path in [
        "/api/v1/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/apps/v1/namespaces/trestle/daemonsets",
        "/api/v1/namespaces/trestle/serviceaccounts",
    ] {
        assert!(paths.iter().any(|one| one == path), "{path}: {paths:?}");
    }
    let set = |generation: i64, ready: u64| {
        json!({"metadata": {"generation": 2}, "status": {"observedGeneration": generation, "desiredNumberScheduled": 3,
               "numberReady": ready, "updatedNumberScheduled": 3}})
    };
    assert_eq!(counts(&set(2, 3)), (3, 3, true));
    assert_eq!(counts(&set(2, 1)), (1, 3, true));
    assert!(!counts(&set(1, 3)).2 && !counts(&json!({})).2, "nobody has looked at it yet");
}
