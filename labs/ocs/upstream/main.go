// OCS's own client package, as its operator for clients calls it, in one life: it onboards, is told what it is to have, reports, and leaves.
// Usage: upstream ADDRESS TICKET. Ends with what went wrong first.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/red-hat-storage/ocs-operator/services/provider/api/v4/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func check(err error, what string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "NOT SO:", what, err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	provider, err := client.NewProviderClient(ctx, os.Args[1], 10*time.Second)
	check(err, "it connects")
	defer provider.Close()

	onboarding := client.NewOnboardConsumerRequest()
	onboarding.SetOnboardingTicket(os.Args[2])
	onboarding.SetConsumerName("upstream")
	onboarding.SetClientOperatorVersion("4.20.0")
	onboarding.SetClientPlatformVersion("4.20.0")
	onboarding.SetClientOperatorNamespace("storage-client")
	onboarding.SetClientID("6a0c6f5e-61a9-4f0c-9c0e-51b6ad0f3f20")
	onboarding.SetClientName("upstream")
	on, err := provider.OnboardConsumer(ctx, onboarding)
	check(err, "it onboards")
	id := on.GetStorageConsumerUUID()

	desired, err := provider.GetDesiredClientState(ctx, id)
	for deadline := time.Now().Add(time.Minute); status.Code(err) == codes.Unavailable && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		desired, err = provider.GetDesiredClientState(ctx, id)
	}
	check(err, "it is told what it is to have")
	if len(desired.GetKubeObjects()) == 0 {
		check(fmt.Errorf("%v", desired), "it is to have objects")
	}

	report := client.NewStorageClientStatus()
	report.SetClientOperatorVersion("4.20.0")
	report.SetClientPlatformVersion("4.20.0")
	report.SetStorageQuotaUtilizationRatio(0.25)
	told, err := provider.ReportStatus(ctx, id, report)
	check(err, "it reports")

	_, err = provider.OffboardConsumer(ctx, id)
	check(err, "it leaves")
	_, err = provider.GetDesiredClientState(ctx, id)
	if err == nil {
		check(fmt.Errorf("%s", id), "who has left is not known")
	}
	fmt.Printf("upstream: onboarded, to have %d objects, reported (channel %q), offboarded\n", len(desired.GetKubeObjects()), told.GetDesiredClientOperatorChannel())
}
