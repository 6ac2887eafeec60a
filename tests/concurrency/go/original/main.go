// The original's behaviour in the cases in which ours is said to be better: each prints what came of it, in one word.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func session(client *clientv3.Client) *concurrency.Session {
	made, err := concurrency.NewSession(client, concurrency.WithTTL(20))
	check(err)
	return made
}

// waitFor returns when count keys stand under name.
func waitFor(client *clientv3.Client, name string, count int64) {
	for {
		found, err := client.Get(context.Background(), name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		check(err)
		if found.Count == count {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// phantom: the lease of a candidate ends while it waits; then the leader resigns.
func phantom(client *clientv3.Client, name string) string {
	ctx := context.Background()
	leader, candidate := session(client), session(client)
	defer leader.Close()
	first := concurrency.NewElection(leader, name)
	check(first.Campaign(ctx, "first"))
	result := make(chan error, 1)
	go func() { result <- concurrency.NewElection(candidate, name).Campaign(ctx, "phantom") }()
	waitFor(client, name, 2)
	time.Sleep(200 * time.Millisecond) // it watches
	_, err := client.Revoke(ctx, candidate.Lease())
	check(err)
	waitFor(client, name, 1)
	check(first.Resign(ctx))
	select {
	case err := <-result:
		if err != nil {
			return "refused"
		}
	case <-time.After(5 * time.Second):
		return "waits"
	}
	waitFor(client, name, 0)
	return "elected-without-a-key"
}

// ended: the own key of a waiter is deleted. Does the wait end?
func ended(client *clientv3.Client, name string) string {
	ctx := context.Background()
	holder, waiter := session(client), session(client)
	defer holder.Close()
	defer waiter.Close()
	check(concurrency.NewMutex(holder, name).Lock(ctx))
	result := make(chan error, 1)
	go func() { result <- concurrency.NewMutex(waiter, name).Lock(ctx) }()
	waitFor(client, name, 2)
	_, err := client.Delete(ctx, fmt.Sprintf("%s/%x", name, waiter.Lease()))
	check(err)
	select {
	case <-result:
		return "ends"
	case <-time.After(time.Second):
		return "waits-on"
	}
}

// unlock: an unlock that was repeated arrives after the same session has locked again.
func unlock(client *clientv3.Client, name string) string {
	ctx := context.Background()
	mine := session(client)
	defer mine.Close()
	mutex := concurrency.NewMutex(mine, name)
	check(mutex.Lock(ctx))
	old := *mutex
	check(mutex.Unlock(ctx))
	check(mutex.Lock(ctx))
	check(old.Unlock(ctx))
	found, err := client.Get(ctx, mutex.Key())
	check(err)
	if len(found.Kvs) == 0 {
		return "removed-the-newer-lock"
	}
	return "left-it-alone"
}

// two: two goroutines of one session lock the same name.
func two(client *clientv3.Client, name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	mine := session(client)
	defer mine.Close()
	check(concurrency.NewMutex(mine, name).Lock(ctx))
	if concurrency.NewMutex(mine, name).Lock(ctx) == nil {
		return "both-inside"
	}
	return "excluded"
}

// usage: original ENDPOINTS NAME
func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ",")})
	check(err)
	defer client.Close()
	fmt.Println("phantom", phantom(client, os.Args[2]+"/phantom"))
	fmt.Println("ended", ended(client, os.Args[2]+"/ended"))
	fmt.Println("unlock", unlock(client, os.Args[2]+"/unlock"))
	fmt.Println("two", two(client, os.Args[2]+"/two"))
}
