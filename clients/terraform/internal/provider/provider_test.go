package provider

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestEveryAttributeSaysWhatItIs(t *testing.T) {
	server := providerserver.NewProtocol6(New("test")())()
	answer, err := server.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil || len(answer.Diagnostics) > 0 {
		t.Fatal(err, answer.Diagnostics)
	}
	if len(answer.ResourceSchemas) == 0 || len(answer.DataSourceSchemas) == 0 {
		t.Fatal("nothing is offered")
	}
	look := func(name string, block *tfprotov6.SchemaBlock) {
		if block.Description == "" {
			t.Errorf("%s says nothing of itself", name)
		}
		for _, attribute := range block.Attributes {
			if attribute.Description == "" {
				t.Errorf("%s.%s says nothing of itself", name, attribute.Name)
			}
		}
	}
	for name, schema := range answer.ResourceSchemas {
		look(name, schema.Block)
	}
	for name, schema := range answer.DataSourceSchemas {
		look("data "+name, schema.Block)
	}
}

func TestPorts(t *testing.T) {
	for text, numbers := range map[string][2]int32{"any": {-1, 0}, "443": {443, 0}, "0": {0, 0}, "8000-8010": {8000, 8010}, "5-5": {5, 0}, "65535": {65535, 0}} {
		read, err := portNumbers(text)
		if err != nil || read != numbers {
			t.Errorf("%s is read as %v, %v", text, read, err)
		}
		if text != "5-5" && portWord(read[0], read[1]) != text {
			t.Errorf("%s is written as %s", text, portWord(read[0], read[1]))
		}
	}
	for _, text := range []string{"", "-1", "65536", "80-79", "80-", "-80", "http", "1-2-3", " 80", "+80"} {
		if read, err := portNumbers(text); err == nil {
			t.Errorf("%q is taken for %v", text, read)
		}
	}
}

func TestProtocols(t *testing.T) {
	for _, text := range []string{"any", "tcp", "udp", "icmp", "icmpv6", "sctp", "47"} {
		number, err := protocolNumber(text)
		if err != nil || protocolWord(number) != text {
			t.Errorf("%s is %d, %v, written as %s", text, number, err, protocolWord(number))
		}
	}
	for _, text := range []string{"", "TCP", "256", "-1", "all"} {
		if number, err := protocolNumber(text); err == nil {
			t.Errorf("%q is taken for %d", text, number)
		}
	}
}

func TestAddressesKeepTheirSpelling(t *testing.T) {
	before := []string{"10.0.0.5/32", "2001:DB8::/32", "web"}
	now := []string{"10.0.0.5", "2001:db8::/32", "web", "192.0.2.1"}
	if read := spelled(before, now); !slices.Equal(read, []string{"10.0.0.5/32", "2001:DB8::/32", "web", "192.0.2.1"}) {
		t.Error(read)
	}
	if plain("10.0.0.5/24") != "10.0.0.5/24" {
		t.Error("a prefix with host bits is another text")
	}
}

func TestLifetimes(t *testing.T) {
	if read, err := seconds("1h30m"); err != nil || read != 5400 {
		t.Error(read, err)
	}
	for _, text := range []string{"0s", "10ms", "-1h", "2 days", "soon"} {
		if read, err := seconds(text); err == nil {
			t.Errorf("%q is taken for %d s", text, read)
		}
	}
}

func TestReasonsAreTheControllersWords(t *testing.T) {
	if said := reason(status.Error(codes.FailedPrecondition, "there is a cycle")); said != "there is a cycle (FAILED_PRECONDITION)" {
		t.Error(said)
	}
	if said := reason(status.Error(codes.Unavailable, "refused")); !strings.Contains(said, "trestle doctor") {
		t.Error(said)
	}
}

func TestIdsOfWhatIsImported(t *testing.T) {
	for _, id := range []string{"", "names", "resource:", "resource:a.b.c/", "host:a/b"} {
		if _, err := ruleKind.imported(id); err == nil {
			t.Errorf("%q is taken for a rule", id)
		}
	}
	for _, id := range []string{"tag:web/names", "resource:default.a.web/names"} {
		if rule, err := ruleKind.imported(id); err != nil || rule.id() != id {
			t.Errorf("%q is %q, %v", id, rule.id(), err)
		}
	}
	for _, id := range []string{"Tier/late", "NetworkPolicy/shop/db"} {
		if object, err := objectKind.imported(id); err != nil || object.id() != id {
			t.Errorf("%q is %q, %v", id, object.id(), err)
		}
	}
}
