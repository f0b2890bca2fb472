"""Follows a node with stubs made from the local API as KPNG names it. Arguments: address, CA, certificate, key, node."""

import pathlib
import queue
import sys
import tempfile

import grpc
from grpc_tools import protoc

# Names as a KPNG backend has them; only the numbers are on the wire.
PROTO = """
syntax = "proto3";
package localv1;

service Sets { rpc Watch(stream WatchReq) returns (stream OpItem) {} }

message WatchReq { string NodeName = 1; }
message OpItem { oneof Op { EmptyOp Sync = 1; Value Set = 2; Ref Delete = 3; EmptyOp Reset = 4; } }
message EmptyOp {}
enum Set { UnknownSet = 0; ServicesSet = 1; EndpointsSet = 2; GlobalServiceInfos = 10; GlobalEndpointInfos = 11; GlobalNodeInfos = 12; }
message Ref { Set Set = 1; string Path = 2; }
message Value { Ref Ref = 1; bytes Bytes = 2; }
message Service {
  string Namespace = 1; string Name = 2; string Type = 3; ServiceIPs IPs = 4; bool MapIP = 5;
  repeated PortMapping Ports = 6; bool ExternalTrafficToLocal = 7; map<string, string> Labels = 8;
  map<string, string> Annotations = 9; repeated IPFilter IPFilters = 10;
  oneof SessionAffinity { ClientIPAffinity ClientIP = 11; }
  bool InternalTrafficToLocal = 12; int32 HealthCheckNodePort = 13;
}
message ServiceIPs { IPSet ClusterIPs = 1; IPSet ExternalIPs = 2; bool Headless = 3; IPSet LoadBalancerIPs = 4; }
message IPSet { repeated string V4 = 1; repeated string V6 = 2; }
message IPFilter { IPSet TargetIPs = 1; repeated string SourceRanges = 2; }
message Endpoint { string Hostname = 1; IPSet IPs = 2; bool Local = 3; repeated PortName PortOverrides = 4; EndpointScopes Scopes = 5; }
message EndpointScopes { bool Internal = 1; bool External = 2; }
message PortName { string Name = 1; int32 Port = 2; }
enum Protocol { UnknownProtocol = 0; TCP = 1; UDP = 2; SCTP = 3; }
message PortMapping { string Name = 1; Protocol Protocol = 2; int32 Port = 3; int32 NodePort = 4; int32 TargetPort = 5; string TargetPortName = 6; }
message ClientIPAffinity { int32 TimeoutSeconds = 1; }
"""


def generate():
    out = tempfile.mkdtemp()
    (pathlib.Path(out) / "localv1.proto").write_text(PROTO)
    assert protoc.main(["protoc", f"-I{out}", f"--python_out={out}", f"--grpc_python_out={out}", "localv1.proto"]) == 0
    sys.path.insert(0, out)
    import localv1_pb2
    import localv1_pb2_grpc

    return localv1_pb2, localv1_pb2_grpc


def main():
    address, ca, certificate, key, node = sys.argv[1:]
    pb, stubs = generate()
    read = lambda path: pathlib.Path(path).read_bytes()
    credentials = grpc.ssl_channel_credentials(read(ca), read(key), read(certificate))
    port = address.rsplit(":", 1)[1]
    channel = grpc.secure_channel(f"localhost:{port}", credentials)
    requests = queue.Queue()
    items = stubs.SetsStub(channel).Watch(iter(requests.get, None), timeout=30)

    requests.put(pb.WatchReq(NodeName=node))
    services, endpoints, kinds = {}, {}, []
    for item in items:
        kinds.append(item.WhichOneof("Op"))
        if kinds[-1] == "Set":
            value = item.Set
            if value.Ref.Set == pb.ServicesSet:
                services[value.Ref.Path] = pb.Service.FromString(value.Bytes)
            else:
                endpoints[value.Ref.Path] = pb.Endpoint.FromString(value.Bytes)
        elif kinds[-1] == "Sync":
            break
    assert kinds[0] == "Reset", kinds
    assert sorted(services) == ["shop/legacy-db", "shop/web"], services
    web = services["shop/web"]
    assert list(web.IPs.ClusterIPs.V4) == ["10.96.0.10"] and web.Type == "NodePort", web
    assert (web.Ports[0].Port, web.Ports[0].NodePort, web.Ports[0].TargetPort) == (80, 30080, 8080), web
    assert web.ExternalTrafficToLocal and not web.InternalTrafficToLocal, web
    of_web = [one for path, one in endpoints.items() if path.startswith("shop/web/")]
    assert [list(one.IPs.V4) for one in of_web] == [["10.244.1.10"]], "hints keep node-1 in its zone"
    assert of_web[0].Local and of_web[0].Scopes.Internal and of_web[0].Scopes.External, of_web
    assert [(one.Name, one.Port) for one in of_web[0].PortOverrides] == [("http", 8080)], of_web
    assert len([path for path in endpoints if path.startswith("shop/legacy-db/")]) == 1, endpoints
    requests.put(None)
    print(f"the view of {node} is whole")


main()
