from leasehold.cli.entry import main

main()
