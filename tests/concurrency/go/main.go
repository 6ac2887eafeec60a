// A contender that uses the real concurrency package: it takes the lock or leads the election, notes its key in the
// log while it is alone, and gives way, again and again.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// alone notes key in the log; the directory shows when somebody else is inside.
func alone(dir, key string) {
	if err := os.Mkdir(dir+"/inside", 0o700); err != nil {
		key = "VIOLATION " + key
	}
	file, err := os.OpenFile(dir+"/log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err)
	_, err = fmt.Fprintln(file, key)
	check(err)
	check(file.Close())
	check(os.Remove(dir + "/inside"))
}

func round(client *clientv3.Client, kind, name, dir string) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(20))
	check(err)
	defer session.Close()
	ctx := context.Background()
	if kind == "lock" {
		mutex := concurrency.NewMutex(session, name)
		check(mutex.Lock(ctx))
		alone(dir, mutex.Key())
		check(mutex.Unlock(ctx))
		return
	}
	election := concurrency.NewElection(session, name)
	check(election.Campaign(ctx, "go"))
	alone(dir, election.Key())
	check(election.Resign(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// usage: contender ENDPOINTS lock|elect NAME DIR ROUNDS
func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ",")})
	check(err)
	defer client.Close()
	rounds, err := strconv.Atoi(os.Args[5])
	check(err)
	for i := 0; i < rounds; i++ {
		round(client, os.Args[2], os.Args[3], os.Args[4])
	}
}
