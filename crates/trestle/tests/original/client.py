"""Calls the tag service with stubs made from Paraglider's service text. Arguments: address, CA, certificate, key."""

import pathlib
import sys
import tempfile

import grpc
from grpc_tools import protoc

# Paraglider's text gives the service; the messages are those of the release it describes.
PROTO = """
syntax = "proto3";
package tagservicepb;

service TagService {
    rpc SetTag(TagMapping) returns (BasicResponse) {}
    rpc GetTag(Tag) returns (TagMapping) {}
    rpc ResolveTag(Tag) returns (TagMappingList) {}
    rpc DeleteTagMember(TagMapping) returns (BasicResponse) {}
    rpc DeleteTag(Tag) returns (BasicResponse) {}
    rpc Subscribe(Subscription) returns (BasicResponse) {}
    rpc Unsubscribe(Subscription) returns (BasicResponse) {}
    rpc GetSubscribers(Tag) returns (SubscriberList) {}
}

message Subscription { string tag_name = 1; string subscriber = 2; }
message SubscriberList { repeated string subscribers = 1; }
message Tag { string tag_name = 1; }
message TagMappingList { repeated TagMapping mappings = 1; }
message TagMapping { string tag_name = 1; repeated string child_tags = 2; OPTIONAL string uri = 3; OPTIONAL string ip = 4; }
message BasicResponse { bool success = 1; string message = 2; }
"""


def generate():
    """Stubs in a directory of their own. Old protoc versions do not know proto3 `optional`; the wire is the same."""
    out = tempfile.mkdtemp()
    (pathlib.Path(out) / "tagservice.proto").write_text(PROTO.replace("OPTIONAL ", ""))
    assert protoc.main(["protoc", f"-I{out}", f"--python_out={out}", f"--grpc_python_out={out}", "tagservice.proto"]) == 0
    sys.path.insert(0, out)
    import tagservice_pb2
    import tagservice_pb2_grpc

    return tagservice_pb2, tagservice_pb2_grpc


def refused(call, request, code):
    try:
        call(request)
    except grpc.RpcError as error:
        assert error.code() == code, error
        assert error.details()
    else:
        raise AssertionError(f"{request} was accepted")


def main():
    address, ca, certificate, key = sys.argv[1:]
    pb, stubs = generate()
    read = lambda path: pathlib.Path(path).read_bytes()
    credentials = grpc.ssl_channel_credentials(read(ca), read(key), read(certificate))
    tags = stubs.TagServiceStub(grpc.secure_channel(address, credentials))

    reply = tags.SetTag(pb.TagMapping(tag_name="vm1", uri="/vms/1", ip="10.0.0.1"))
    assert reply.success and reply.message == "Created/updated tag: vm1", reply
    tags.SetTag(pb.TagMapping(tag_name="vm2", ip="2001:db8::2"))
    tags.SetTag(pb.TagMapping(tag_name="web", child_tags=["vm1", "vm2"]))
    tags.SetTag(pb.TagMapping(tag_name="all", child_tags=["web", "vm1", "192.0.2.0/24"]))

    leaf = tags.GetTag(pb.Tag(tag_name="vm1"))
    assert (leaf.uri, leaf.ip, list(leaf.child_tags)) == ("/vms/1", "10.0.0.1", [])
    assert sorted(tags.GetTag(pb.Tag(tag_name="all")).child_tags) == ["192.0.2.0/24", "vm1", "web"]
    resolved = tags.ResolveTag(pb.Tag(tag_name="all")).mappings
    assert [(m.tag_name, m.ip) for m in resolved] == [("", "192.0.2.0/24"), ("vm1", "10.0.0.1"), ("vm2", "2001:db8::2")]

    tags.Subscribe(pb.Subscription(tag_name="all", subscriber="default>azure>/vms/9"))
    assert list(tags.GetSubscribers(pb.Tag(tag_name="all")).subscribers) == ["default>azure>/vms/9"]
    tags.Unsubscribe(pb.Subscription(tag_name="all", subscriber="default>azure>/vms/9"))
    assert not tags.GetSubscribers(pb.Tag(tag_name="all")).subscribers

    refused(tags.SetTag, pb.TagMapping(tag_name="web", child_tags=["all"]), grpc.StatusCode.FAILED_PRECONDITION)
    refused(tags.GetTag, pb.Tag(tag_name="unknown"), grpc.StatusCode.NOT_FOUND)
    refused(tags.SetTag, pb.TagMapping(tag_name="a b", ip="10.0.0.1"), grpc.StatusCode.INVALID_ARGUMENT)

    assert tags.DeleteTagMember(pb.TagMapping(tag_name="all", child_tags=["web"])).success
    assert tags.DeleteTag(pb.Tag(tag_name="vm1")).success
    assert list(tags.GetTag(pb.Tag(tag_name="all")).child_tags) == ["192.0.2.0/24"]
    print("all calls answered as documented")


main()
