"""Calls the storage provider with stubs made from the OCS design's own text.

Arguments: address, CA, ticket file, RSA ticket file, RSA key file. Makes tickets of its own with openssl and that key.
"""

import base64
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import uuid

import grpc
from grpc_tools import protoc

QUANTITY = """
syntax = "proto2";
package k8s.io.apimachinery.pkg.api.resource;
message Quantity { optional string string = 1; }
"""

# The OCS design's service with its two names mended, as it must be to compile; CAPACITY is the design's type or a later release's.
PROTO = """
syntax = "proto3";
package provider;
IMPORT
service OCSProvider {
  rpc OnBoardConsumer (OnBoardConsumerRequest) returns (OnBoardConsumerResponse) {}
  rpc OnboardConsumer (OnBoardConsumerRequest) returns (OnBoardConsumerResponse) {}
  rpc GetStorageConfig(StorageConfigRequest) returns (StorageConfigResponse) {}
  rpc UpdateCapacity(UpdateCapacityRequest) returns (UpdateCapacityResponse) {}
  rpc OffboardConsumer (OffBoardConsumerRequest) returns (OffBoardConsumerResponse) {}
}
message OnBoardConsumerRequest { string token = 1; CAPACITY capacity = 2; }
message OnBoardConsumerResponse { string storageConsumerUUID = 1; CAPACITY grantedCapacity = 2; }
message StorageConfigRequest { string storageConsumerUUID = 1; }
message StorageConfigResponse { bytes data = 1; }
message OffBoardConsumerRequest { string storageConsumerUUID = 1; }
message OffBoardConsumerResponse {}
message UpdateCapacityRequest { string storageConsumerUUID = 1; CAPACITY capacity = 2; }
message UpdateCapacityResponse { CAPACITY grantedCapacity = 2; }
"""


def stubs(out, name, capacity, imported):
    text = PROTO.replace("CAPACITY", capacity).replace("IMPORT", imported)
    # Two forms of one package cannot live in one descriptor pool, so each gets a package of its own; the path is set by hand.
    (out / f"{name}.proto").write_text(text.replace("package provider;", f"package {name};"))
    assert protoc.main(["protoc", f"-I{out}", f"--python_out={out}", f"{name}.proto"]) == 0
    return __import__(f"{name}_pb2")


class Client:
    def __init__(self, channel, pb):
        self.channel, self.pb = channel, pb

    def __getattr__(self, method):
        replies = {"GetStorageConfig": "StorageConfigResponse", "OffboardConsumer": "OffBoardConsumerResponse"}
        replies |= {"OnboardConsumer": "OnBoardConsumerResponse", "OnBoardConsumer": "OnBoardConsumerResponse"}
        reply = getattr(self.pb, replies.get(method, f"{method}Response"))
        serialize = lambda message: message.SerializeToString()
        return self.channel.unary_unary(f"/provider.OCSProvider/{method}", serialize, reply.FromString)


def refused(call, request, code):
    try:
        call(request)
    except grpc.RpcError as error:
        assert error.code() == code, error
    else:
        raise AssertionError("accepted")


def made_ticket(key, payload):
    """A ticket in the original's format, with openssl alone."""
    sign = ["openssl", "dgst", "-sha256", "-sign", key]
    signature = subprocess.run(sign, input=payload.encode(), stdout=subprocess.PIPE, check=True).stdout
    return ".".join(base64.b64encode(part).decode() for part in [payload.encode(), signature])


def bad_tickets(key):
    """Tickets that only just are none."""
    payload = lambda expires: json.dumps({"id": str(uuid.uuid4()), "expirationDate": expires})
    hour = int(time.time()) + 3600
    good = made_ticket(key, payload(str(hour)))
    head, signature = good.split(".")
    yield "expired by a second", made_ticket(key, payload(str(int(time.time()) - 1)))
    yield "a number for a date", made_ticket(key, payload(hour))
    yield "no date", made_ticket(key, json.dumps({"id": "x"}))
    yield "no JSON", made_ticket(key, "x")
    other = base64.b64encode(payload(str(hour)).encode()).decode()
    yield "another payload", f"{other}.{signature}"
    yield "one part", head
    yield "three parts", f"{good}.{signature}"
    yield "bad base64", f"{head}.{signature[:-2]}*="
    subprocess.run(["openssl", "genrsa", "-out", "stranger.key", "2048"], check=True, stderr=subprocess.DEVNULL)
    yield "a stranger's key", made_ticket("stranger.key", payload(str(hour)))


def config(client, pb, consumer):
    for _ in range(300):
        try:
            return json.loads(client.GetStorageConfig(pb.StorageConfigRequest(storageConsumerUUID=consumer)).data)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            time.sleep(0.1)
    raise AssertionError("storage was never ready")


class Disk:
    """A qemu-io that stays connected to the volume of these connection details."""

    def __init__(self, out, items):
        data = {key: value for item in items for key, value in item["data"].items()}
        creds = pathlib.Path(tempfile.mkdtemp(dir=out))
        for name, key in [("ca-cert", "ca"), ("client-cert", "cert"), ("client-key", "key")]:
            (creds / f"{name}.pem").write_text(data[key])
        image = f"driver=nbd,server.type=inet,server.host={data['address']},server.port={data['port']},export={data['export']},tls-creds=t"
        command = ["qemu-io", "--object", f"tls-creds-x509,id=t,endpoint=client,dir={creds}", "--image-opts", image]
        streams = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.process = subprocess.Popen(["timeout", "60", *command], **streams)

    def ask(self, command):
        """The line that tells a command's outcome."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if any(word in line for word in ["failed", "wrote", "read "]):
                return line
        return "failed: no answer"


def limits_and_end(client, seed, quantity, out, consumer):
    """What a new capacity and the end mean to a connection that is open all the while."""
    update = lambda text: client.UpdateCapacity(seed.UpdateCapacityRequest(storageConsumerUUID=consumer, capacity=quantity(text)))
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    update("8Mi")
    disk = Disk(out, config(client, seed, consumer))
    assert "wrote" in disk.ask("write -P 7 0 8M")
    assert "failed" in disk.ask("write -P 7 8M 1M"), "a volume nobody used has become as small as its grant"
    assert update("16Mi").grantedCapacity.string == "16Mi"
    assert "wrote" in disk.ask("write -P 7 7M 1M"), "the open connection goes on with the size it was told"
    small, disk = disk, Disk(out, config(client, seed, consumer))
    assert "wrote" in disk.ask("write -P 7 8M 1M"), "who connects anew has the larger one"
    refused(update, "4Mi", invalid)
    assert "wrote" in disk.ask("write -P 7 15M 1M"), "a refused capacity changes nothing"
    assert "read " in disk.ask("read -P 7 0 9M")
    offboard = lambda: client.OffboardConsumer(seed.OffBoardConsumerRequest(storageConsumerUUID=consumer))
    offboard()
    refused(client.GetStorageConfig, seed.StorageConfigRequest(storageConsumerUUID=consumer), invalid)
    refused(update, "32Mi", invalid)
    until_gone(client, seed, consumer)
    for one in [small, disk]:
        assert "failed" in one.ask("read 0 4k"), "the open connection is dead"
        one.process.kill()


def until_gone(client, seed, consumer):
    """A consumer that leaves is let leave again; one that has left is nobody."""
    for _ in range(300):
        try:
            client.OffboardConsumer(seed.OffBoardConsumerRequest(storageConsumerUUID=consumer))
            time.sleep(0.1)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
            return
    raise AssertionError("a consumer that has left is still known")


def main():
    address, ca, ticket, rsa_ticket, rsa_key = sys.argv[1:]
    out = pathlib.Path(tempfile.mkdtemp())
    sys.path.insert(0, str(out))
    (out / "quantity.proto").write_text(QUANTITY)
    assert protoc.main(["protoc", f"-I{out}", f"--python_out={out}", "quantity.proto"]) == 0
    seed = stubs(out, "seed", "k8s.io.apimachinery.pkg.api.resource.Quantity", 'import "quantity.proto";')
    later = stubs(out, "later", "string", "")
    import quantity_pb2

    quantity = lambda text: quantity_pb2.Quantity(string=text)
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(pathlib.Path(ca).read_bytes()))
    client, plain = Client(channel, seed), Client(channel, later)
    token = pathlib.Path(ticket).read_text().strip()
    invalid = grpc.StatusCode.INVALID_ARGUMENT

    onboard = lambda _: client.OnBoardConsumer(seed.OnBoardConsumerRequest(token=token, capacity=quantity("64Mi")))
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(onboard, range(50)))
    consumer = replies[0].storageConsumerUUID
    assert all(reply.grantedCapacity.string == "64Mi" for reply in replies), replies
    items = config(client, seed, consumer)
    assert {item["kind"] for item in items} >= {"Secret", "StorageClass"}, items
    assert {reply.storageConsumerUUID for reply in replies} == {consumer}, "one ticket is one consumer"

    # The later release's plain text is answered in kind.
    again = plain.OnBoardConsumer(later.OnBoardConsumerRequest(token=token, capacity="64Mi"))
    assert again.grantedCapacity == "64Mi", again
    assert plain.UpdateCapacity(later.UpdateCapacityRequest(storageConsumerUUID=consumer, capacity="1.5Gi")).grantedCapacity == "1536Mi"
    config(client, seed, consumer)
    grown = client.UpdateCapacity(seed.UpdateCapacityRequest(storageConsumerUUID=consumer, capacity=quantity("128Mi")))
    assert grown.grantedCapacity.string == "128Mi", grown

    flipped = consumer[:-2] + ("A" if consumer[-2] != "A" else "B") + consumer[-1]
    for bad in ["", "x", flipped, "00000000-0000-0000-0000-000000000000"]:
        refused(client.UpdateCapacity, seed.UpdateCapacityRequest(storageConsumerUUID=bad, capacity=quantity("1Gi")), invalid)
        refused(client.GetStorageConfig, seed.StorageConfigRequest(storageConsumerUUID=bad), invalid)
        refused(client.OffboardConsumer, seed.OffBoardConsumerRequest(storageConsumerUUID=bad), invalid)
    for bad in ["", "a.b", token[:-4] + "AAAA", token + "x"]:
        refused(client.OnBoardConsumer, seed.OnBoardConsumerRequest(token=bad, capacity=quantity("1Gi")), invalid)
    for why, bad in bad_tickets(rsa_key):
        print(why)
        refused(client.OnBoardConsumer, seed.OnBoardConsumerRequest(token=bad, capacity=quantity("1Mi")), invalid)
    for bad in ["", "-1Gi", "1.1.1", "0", " 1Gi", "abc", "1i"]:
        refused(client.OnBoardConsumer, seed.OnBoardConsumerRequest(token=token, capacity=quantity(bad)), invalid)

    foreign = pathlib.Path(rsa_ticket).read_text().strip()
    reply = client.OnBoardConsumer(seed.OnBoardConsumerRequest(token=foreign, capacity=quantity("10Mi")))
    config(client, seed, reply.storageConsumerUUID)
    client.OffboardConsumer(seed.OffBoardConsumerRequest(storageConsumerUUID=reply.storageConsumerUUID))
    refused(client.GetStorageConfig, seed.StorageConfigRequest(storageConsumerUUID=reply.storageConsumerUUID), invalid)
    # Gone for good: what a later release answers with OK, the design calls invalid.
    until_gone(client, seed, reply.storageConsumerUUID)
    refused(client.OnBoardConsumer, seed.OnBoardConsumerRequest(token=foreign, capacity=quantity("10Mi")), invalid)
    limits_and_end(client, seed, quantity, out, consumer)
    # Calls of releases that are not served, and none of any.
    for method in ["PeerStorageCluster", "Notify", "Nonsense"]:
        call = channel.unary_unary(f"/provider.OCSProvider/{method}", lambda bytes: bytes, lambda bytes: bytes)
        refused(call, b"", grpc.StatusCode.UNIMPLEMENTED)
    print("all calls answered as documented")


main()
